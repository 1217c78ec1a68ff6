//! `undertone audit all`: every attack that applies to a finished run, beside the untouched model
//! and a run without privacy.

use super::exposure::{self, ExposureArguments};
use super::extraction::ExtractionArguments;
use super::membership::by_losses;
use super::private_things::FinderArguments;
use super::reconstruction::ReconstructionArguments;
use super::run_folder::FinishedRun;
use crate::arguments::{ConfidenceArgument, RunArgument, SeedArgument};
use crate::device::DeviceArguments;
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output, area, share};
use clap::Args;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use undertone::audit::statistics::Interval;
use undertone::data::Example;
use undertone::model::Purpose;
use undertone::train::read_data;
use undertone_report::plot;

/// Every attack that applies to a finished run, in one table
///
/// Membership for every run; for language models also extraction and reconstruction of private
/// things, and the exposure of planted secrets where their file is named. The same figures for the
/// untouched model stand beside them, and those of a run without privacy if one is named. What a
/// one-run audit found earlier is repeated.
#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone audit all --run runs/private --open runs/open --canaries \
     canaries.jsonl"
)]
pub struct All {
    #[command(flatten)]
    target: RunArgument,
    /// Folder of a run without privacy on the same data, to compare with
    #[arg(long, value_name = "DIR")]
    open: Option<PathBuf>,
    /// File that was not trained on [default: the run's validation file]
    #[arg(long, value_name = "FILE")]
    non_members: Option<PathBuf>,
    /// File of planted secrets (JSON lines, as `audit exposure` reads it)
    #[arg(long, value_name = "FILE")]
    canaries: Option<PathBuf>,
    /// Examples of either kind that membership is attacked with at most
    #[arg(long, default_value_t = 10_000)]
    examples: usize,
    /// Candidates that each planted secret is compared with at most
    #[arg(long, default_value_t = 1000)]
    candidates: usize,
    /// Texts that each model writes
    #[arg(long, default_value_t = 200)]
    texts: usize,
    /// Tokens of each text at most
    #[arg(long, default_value_t = 256)]
    tokens: usize,
    /// Masked texts
    #[arg(long, default_value_t = 50)]
    targets: usize,
    #[command(flatten)]
    intervals: ConfidenceArgument,
    #[command(flatten)]
    random: SeedArgument,
    #[command(flatten)]
    finder: FinderArguments,
    #[command(flatten)]
    device: DeviceArguments,
}

/// What a figure measures, which decides how it is written.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Measure {
    Area,
    Share,
    Bits,
}

/// A figure of the run, of the run without privacy and of the untouched model.
#[derive(Serialize)]
struct Figure {
    attack: String,
    measure: Measure,
    run: Interval,
    open: Option<Interval>,
    untouched: Option<Interval>,
    /// What somebody who knows nothing would get.
    guessing: Option<f64>,
}

impl Figure {
    fn row(&self, with_open: bool) -> Vec<String> {
        let said = |i: &Interval| match self.measure {
            Measure::Area => area(i),
            Measure::Share => share(i),
            Measure::Bits => format!("{:.1} ({:.1} … {:.1})", i.estimate, i.lower, i.upper),
        };
        let or_none = |i: &Option<Interval>| i.as_ref().map_or("–".to_owned(), said);
        let guessing = self.guessing.map_or("–".to_owned(), |guess| match self.measure {
            Measure::Share => format!("{:.1} %", 100.0 * guess),
            _ => format!("{guess:.2}"),
        });
        let mut row = vec![self.attack.clone(), said(&self.run)];
        row.extend(with_open.then(|| or_none(&self.open)));
        row.extend([or_none(&self.untouched), guessing]);
        row
    }
}

impl All {
    pub fn run(self, output: Output) -> Outcome {
        if self.examples == 0 {
            return Err(Failure::arguments("--examples must be at least 1"));
        }
        let run = FinishedRun::open(&self.target.run)?;
        let open = self.open.as_deref().map(FinishedRun::open).transpose()?;
        if let Some(open) = &open
            && open.plan.purpose() != run.plan.purpose()
        {
            return Err(Failure::arguments("--open names a run of another kind of model"));
        }
        if open.as_ref().is_some_and(|open| open.plan.is_private()) {
            return Err(Failure::arguments(
                "--open names a run with privacy; it is for one with method = \"none\", to compare \
                 with",
            ));
        }
        if self.canaries.is_some() && run.plan.purpose() != Purpose::CausalLanguageModel {
            return Err(Failure::arguments(
                "--canaries is for language models; this run is of a classifier",
            ));
        }
        let mut left_out = Vec::new();
        let mut figures = self.membership(&run, open.as_ref(), &mut left_out)?;
        if run.plan.purpose() == Purpose::CausalLanguageModel {
            match &self.canaries {
                Some(file) => figures.push(self.exposure(file, &run, open.as_ref())?),
                None => left_out.push("exposure (name the planted secrets by --canaries)"),
            }
            figures.extend(self.private_things(&run, open.as_ref(), &mut left_out)?);
        }
        if run.plan.is_forward() {
            left_out
                .push("attacks on what records release (see audit inversion and audit attribute)");
        }
        run.keep("all", json!(figures))?;
        self.show(&run, &figures, open.is_some(), &left_out, output)
    }

    fn show(
        &self,
        run: &FinishedRun,
        figures: &[Figure],
        with_open: bool,
        left_out: &[&str],
        output: Output,
    ) -> Outcome {
        let one_run = run.kept("one_run")?;
        let bound = one_run["epsilon_lower"].as_f64();
        if output.json {
            output::json(&json!({ "figures": figures, "one_run": one_run, "left_out": left_out }));
        } else {
            let head: &[&str] = match with_open {
                true => &["attack", "this run", "without privacy", "untouched model", "guessing"],
                false => &["attack", "this run", "untouched model", "guessing"],
            };
            output::table(
                head,
                &figures.iter().map(|figure| figure.row(with_open)).collect::<Vec<_>>(),
            );
            output::line("");
            match run.promised() {
                Some((epsilon, delta)) => output::line(format_args!(
                    "The run promises ε = {} at δ = {delta:e}.",
                    output::up(epsilon)
                )),
                None => output::line("The run promises nothing."),
            }
            if let Some(bound) = bound {
                output::line(format_args!("A one-run audit shows that ε is at least {bound:.4}."));
            }
            if !left_out.is_empty() {
                output::line(format_args!("Not attacked: {}.", left_out.join("; ")));
            }
            output::line(format_args!(
                "{:.0} % intervals in brackets. Everything is in {}.",
                self.intervals.percent(),
                run.folder.join("audit.json").display()
            ));
        }
        match (run.promised(), bound) {
            (Some((promised, _)), Some(bound)) if bound > promised => {
                Err(Failure::Violation(format!(
                    "the run promises ε = {promised:.4}, but canaries show at least {bound:.4}: \
                     the guarantee is broken"
                )))
            }
            _ => Ok(()),
        }
    }

    fn membership(
        &self,
        run: &FinishedRun,
        open: Option<&FinishedRun>,
        left_out: &mut Vec<&str>,
    ) -> Outcome<Vec<Figure>> {
        let Some(others) = self.non_members.as_ref().or(run.plan.data.validation.as_ref()) else {
            left_out.push("membership (name a file that was not trained on by --non-members)");
            return Ok(Vec::new());
        };
        let mut all: Vec<Example> = read_data(&run.plan, None)?.examples;
        all.truncate(self.examples);
        let members = all.len();
        all.extend(read_data(&run.plan, Some(others))?.examples.into_iter().take(self.examples));
        if members == 0 || all.len() == members {
            return Err(Failure::arguments("both files need at least one example"));
        }
        let how = (self.intervals.confidence, self.random.seed);
        let (found, _) = by_losses(run, &all, members, how, true, &self.device)?;
        run.keep("membership", json!(found))?;
        let curves: Vec<(&str, &[(f64, f64)])> =
            found.iter().map(|a| (a.attack, a.roc.as_slice())).collect();
        plot::roc(&run.folder.join("membership.svg"), "Membership inference", &curves)?;
        let beside = open
            .map(|open| by_losses(open, &all, members, how, true, &self.device))
            .transpose()?
            .map(|b| b.0);
        let figure = |name: &str,
                      measure,
                      pick: &dyn Fn(&[undertone::audit::membership::Membership]) -> Interval,
                      untouched,
                      guessing| {
            Figure {
                attack: format!("membership, {name}"),
                measure,
                run: pick(&found),
                open: beside.as_ref().map(|found| pick(found)),
                untouched,
                guessing: Some(guessing),
            }
        };
        Ok(vec![
            figure("AUC by loss", Measure::Area, &|f| f[0].auc, Some(found[2].auc), 0.5),
            figure(
                "AUC by loss against the untouched model",
                Measure::Area,
                &|f| f[1].auc,
                None,
                0.5,
            ),
            figure(
                "found at 1 % false alarms",
                Measure::Share,
                &|f| f[1].rate_at_1_percent,
                None,
                0.01,
            ),
        ])
    }

    fn exposure(
        &self,
        file: &std::path::Path,
        run: &FinishedRun,
        open: Option<&FinishedRun>,
    ) -> Outcome<Figure> {
        let canaries = exposure::read(file)?;
        let asked = ExposureArguments {
            candidates: self.candidates,
            random: self.random,
            intervals: self.intervals,
        };
        let of = |run: &FinishedRun, trained: bool| -> Outcome<Interval> {
            Ok(asked.mean(&asked.attack(run, trained, &canaries, &self.device)?))
        };
        Ok(Figure {
            attack: format!("exposure of {} planted secrets, bits", canaries.len()),
            measure: Measure::Bits,
            run: of(run, true)?,
            open: open.map(|open| of(open, true)).transpose()?,
            untouched: Some(of(run, false)?),
            // The mean of −log₂ of a uniform number.
            guessing: Some(std::f64::consts::LOG2_E),
        })
    }

    fn private_things(
        &self,
        run: &FinishedRun,
        open: Option<&FinishedRun>,
        left_out: &mut Vec<&str>,
    ) -> Outcome<Vec<Figure>> {
        let (training, finder) = self.finder.read(run)?;
        let kinds: Vec<_> = (self.finder.kinds().into_iter())
            .filter(|&kind| training.spans.iter().flatten().any(|span| span.kind == kind))
            .collect();
        if kinds.is_empty() {
            left_out.push(
                "extraction and reconstruction (nothing private was found in the texts; \
             see --names and --tagger)",
            );
            return Ok(Vec::new());
        }
        let (intervals, random) = (self.intervals, self.random);
        let writing = ExtractionArguments {
            texts: self.texts,
            tokens: self.tokens,
            top_k: 40,
            batch: 64,
            intervals,
            random,
        };
        let untouched = writing.written(run, false, &self.device)?;
        let extracted =
            writing.attack(run, &training, &untouched, &finder, &kinds, &self.device)?;
        run.keep("extraction", json!(extracted))?;
        let beside = open
            .map(|open| writing.attack(open, &training, &untouched, &finder, &kinds, &self.device))
            .transpose()?;
        let mut figures = Vec::new();
        for (i, found) in extracted.iter().enumerate() {
            let kind = found.kind.plural();
            let of =
                |name: &str, pick: &dyn Fn(&undertone::audit::extraction::Extraction) -> Interval| Figure {
                    attack: format!("extraction of {kind}, {name}"),
                    measure: Measure::Share,
                    run: pick(found),
                    open: beside.as_ref().map(|beside| pick(&beside[i])),
                    untouched: None,
                    guessing: None,
                };
            figures.push(of("recall", &|found| found.recall));
            figures.push(of("precision", &|found| found.precision));
        }
        let masking = ReconstructionArguments {
            targets: self.targets,
            samples: 64,
            top: 5,
            context: 400,
            intervals,
            random,
        };
        for &kind in &kinds {
            let targets = masking.targets(&training, kind)?;
            let of = |run: &FinishedRun, trained: bool| -> Outcome<Interval> {
                Ok(masking.attack(run, trained, &targets, &finder, None, &self.device)?.top_1)
            };
            figures.push(Figure {
                attack: format!("reconstruction of {}, right", kind.plural()),
                measure: Measure::Share,
                run: of(run, true)?,
                open: open.map(|open| of(open, true)).transpose()?,
                untouched: Some(of(run, false)?),
                guessing: None,
            });
        }
        Ok(figures)
    }
}
