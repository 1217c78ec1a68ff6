//! The sampling part of `undertone synthesize`.

use super::again;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::stop::Stop;
use crate::use_model::Loaded;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::Ordering;
use undertone::model::TaskHead;
use undertone::synthesize::{Export, Sampling, SamplingSettings, TextModel, export, sample};
use undertone::tensor::Device;
use undertone_run::{
    FinishedRun, RunFolder, RunPaths, SampledFacts, Statistics, Summary, SynthesisSection,
    SyntheticFormat,
};

/// Number of texts per round on the CPU and on a GPU: what sampling repeats after an interruption.
const ROUND: (usize, usize) = (64, 512);

/// What to sample.
#[derive(Args, Default)]
#[command(next_help_heading = "Rows")]
pub struct RowArguments {
    /// Number of rows to sample (synthesis.rows) [default: 1000]
    #[arg(long, value_name = "N")]
    rows: Option<u64>,
    /// Format of the rows (synthesis.format) [default: csv]
    #[arg(long, value_enum)]
    format: Option<SyntheticFormat>,
    /// Sampling temperature (synthesis.temperature) [default: 1]
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// Sample from the most likely tokens with this total probability (synthesis.top_p) [default:
    /// 0.95]
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
}

impl RowArguments {
    /// The flags as overrides of run-file keys.
    pub fn changes(&self) -> Vec<String> {
        let text = |key: &str, value: Option<String>| {
            value.map(|value| format!("synthesis.{key}={value}"))
        };
        [
            text("rows", self.rows.map(|n| n.to_string())),
            text("format", self.format.map(|format| format.extension().to_owned())),
            text("temperature", self.temperature.map(|t| format!("{t:?}"))),
            text("top_p", self.top_p.map(|p| format!("{p:?}"))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The number of rows, if it is given.
    pub fn rows(&self) -> Option<u64> {
        self.rows
    }

    /// Whether the given flags have these values.
    pub fn agrees_with(
        &self,
        rows: u64,
        temperature: f64,
        top_p: Option<f64>,
        format: SyntheticFormat,
    ) -> bool {
        self.rows.is_none_or(|own| own == rows)
            && self.temperature.is_none_or(|own| own == temperature)
            && self.top_p.is_none_or(|own| Some(own) == top_p)
            && self.format.is_none_or(|own| own == format)
    }

    /// The missing flags, from sampling that was interrupted.
    fn or(&self, begun: Option<SamplingSettings>) -> Self {
        let begun = begun.as_ref();
        Self {
            rows: self.rows.or(begun.map(|begun| begun.rows)),
            format: self.format.or(begun.map(|begun| begun.data_format)),
            temperature: self.temperature.or(begun.map(|begun| begun.temperature)),
            top_p: self.top_p.or(begun.map(|begun| begun.top_p)),
        }
    }

    pub fn names_top_p(&self) -> bool {
        self.top_p.is_some()
    }

    /// The settings of the run with the flags applied, which must be within the ranges of their
    /// keys.
    fn section(&self, summary: &Summary) -> Outcome<SynthesisSection> {
        let plan = summary.plan.to_toml()?;
        let file = undertone_run::RunFile::parse(&plan, &self.changes())?;
        file.synthesis.ok_or_else(|| {
            Failure::arguments(
                "the run has no section [synthesis], so it has no histograms to sample by; start a \
                 new run with `undertone synthesize`",
            )
        })
    }
}

/// Samples the rows of a finished run and writes them, unless they already exist. `watch` is called
/// with the number of rows sampled so far and the number wanted.
pub fn sample_rows(
    out: &Path,
    arguments: &RowArguments,
    device: &Device,
    stop: &Stop,
    watch: &mut dyn FnMut(u64, u64),
) -> Outcome<(Summary, SampledFacts)> {
    // The folder is locked while rows are sampled.
    let summary = FinishedRun::read(out)?.summary;
    let folder = RunFolder::open(out)?;
    let paths = folder.synthetic();
    let statistics = Statistics::read(&folder.statistics())?;
    if paths.facts().exists() {
        let facts = SampledFacts::read(&paths.facts())?;
        let SampledFacts { rows, temperature, top_p, data_format, .. } = facts;
        if !arguments.agrees_with(rows, temperature, Some(top_p), data_format) {
            return Err(Failure::arguments(format!(
                "{} has rows that were sampled with other settings; remove or rename it to sample \
                 again",
                paths.folder().display()
            )));
        }
        check_origin(&folder, &statistics)?;
        return Ok((summary, facts));
    }
    let begun = SamplingSettings::recorded(&paths.journal());
    let section = arguments.or(begun).section(&summary)?;
    // Private figures of earlier rows do not describe the new ones.
    remove(&folder.private_evaluation())?;
    let loaded = Loaded::of_run(out, device, Some(TaskHead::CausalLanguageModel))?;
    let data = &summary.plan.data;
    let tokenizer = loaded.model.tokenizer(&loaded.folder, data.max_tokens)?;
    let (statistics, section, journal) = (&statistics, &section, &paths.journal());
    let round = if matches!(device, Device::Cpu) { ROUND.0 } else { ROUND.1 };
    let sampling = Sampling { statistics, section, data, round, journal };
    let model = TextModel::new(&loaded.model, &tokenizer, &sampling)?;
    let bar = progress(section.rows);
    stop.steps_begin();
    let sampled = sample(
        &sampling,
        &mut |first, classes| match stop.asked.load(Ordering::SeqCst) {
            true => Err(undertone::Error::Stopped { step: first, steps: section.rows }),
            false => model.write(first, classes),
        },
        &mut |rows| {
            bar.set_position(rows);
            watch(rows, section.rows);
        },
    );
    bar.finish_and_clear();
    let sampled = match sampled {
        Err(undertone::Error::Stopped { .. }) => {
            return Err(Failure::Stopped(format!(
                "stopped while sampling; continue with: {}",
                again(out)
            )));
        }
        done => done?,
    };
    let files = Export { run: &folder, summary: &summary, statistics, section };
    let facts = export(&files, &sampled)?;
    Ok((summary, facts))
}

/// Rejects rows that were moved here from another run.
fn check_origin(run: &RunPaths, statistics: &Statistics) -> Outcome {
    let paths = run.synthetic();
    let seed = SamplingSettings::recorded(&paths.journal()).map(|begun| begun.sampling_seed);
    let same = |copy: &Path, original: &Path| match (std::fs::read(copy), std::fs::read(original)) {
        (Ok(copy), Ok(original)) => copy == original,
        (copy, original) => copy.is_err() && original.is_err(),
    };
    if seed == Some(statistics.sampling_seed) && same(&paths.ledger(), &run.ledger()) {
        return Ok(());
    }
    Err(Failure::arguments(format!(
        "{} has rows of another run; remove or rename it to sample again",
        paths.folder().display()
    )))
}

fn remove(file: &Path) -> Outcome {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::write(file, e)),
        _ => Ok(()),
    }
}

/// A progress bar, only on a terminal.
pub fn progress(rows: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() || output::is_hushed() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} rows, {eta} left");
    ProgressBar::new(rows).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
