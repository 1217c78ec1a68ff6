//! `undertone init`: from a data file to a run file with good settings.
//!
//! Of the private file only its columns and its number of rows and units are told; labels are
//! written down only where the person says so.

mod columns;
mod write;

use crate::device::DeviceArguments;
use crate::dry_run::{noise, seconds, spoken};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::source::{ColumnArguments, name_of, resolve};
use clap::Args;
use columns::{Asked, Columns, Person};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use undertone::data::{Labels, format_of, read};
use undertone::method::calibrate;
use undertone::model::folder::is_at_hand;
use undertone::train::rehearse;
use undertone::units_of;
use undertone_run::{Choices, OnBadRow, TaskName, WrittenRun, write_atomically};
use write::Draft;

/// Look at a data file and write a commented run file with good settings
///
/// Columns are found by their usual names, by flags, or by asking on a terminal. Nothing of the
/// file is told but its columns and its number of rows and units.
#[derive(Args)]
#[command(after_help = "Examples:\n  undertone init letters.csv --epsilon 8\n  undertone init \
     letters.csv --model models/all-MiniLM-L6-v2 --text text --label topic --author customer")]
pub struct Init {
    /// The private data file: CSV, TSV, JSON Lines, Parquet or text
    data: PathBuf,
    /// Model folder, or the model's name on the Hugging Face hub [default: a small one for the
    /// task]
    #[arg(long, value_name = "DIR|NAME")]
    model: Option<String>,
    /// Target ε
    #[arg(long, default_value_t = 8.0)]
    epsilon: f64,
    #[command(flatten)]
    columns: ColumnArguments,
    /// Declare the number of privacy units, so that the true number stays private
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX))
    )]
    units: Option<u64>,
    /// Make a row the privacy unit, even if there is a column of authors
    #[arg(long, conflicts_with = "author")]
    no_author: bool,
    /// Write the label names that the file holds into the run file: they become public
    #[arg(long, conflicts_with = "labels")]
    read_labels: bool,
    /// The run file to write
    #[arg(long, value_name = "FILE", default_value = "run.toml")]
    out: PathBuf,
    /// Write over a file that exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    device: DeviceArguments,
}

impl Init {
    pub fn run(self, output: Output) -> Outcome {
        if self.out.exists() && !self.force {
            return Err(Failure::arguments(format!(
                "{} exists; choose another file with --out, or write over it with --force",
                self.out.display()
            )));
        }
        let format = format_of(&self.data, None)?;
        let names = read::columns(&self.data, format)?;
        let mut person = Person;
        let columns = Columns::find(&names, &self.columns, !self.no_author, &mut person)?;
        let labels = self.labels(&columns, &mut person)?;
        let model = self.model.as_deref().unwrap_or(usual_model(columns.task));
        let mut draft = Draft {
            model,
            data: &self.data,
            validation: self.columns.validation.as_deref(),
            columns: &columns,
            labels: labels.as_deref(),
            epsilon: self.epsilon,
            units: 0,
            declared_units: self.units,
        };
        let device = self.device.device()?;
        let at_hand = is_at_hand(model);
        let short = WrittenRun::parse(&draft.short(), &[])?;
        let count = units_of(short.data())?;
        draft.units = self.units.unwrap_or(count.units as u64);
        let plan = match at_hand {
            true => resolve(&short, None, &device)?.plan,
            false => undertone::Plan::resolve_without_model(&short, &device)?,
        };
        let text = draft.text(Some(&Choices::of(&plan.file())));
        // What is written must be what was chosen.
        let written = WrittenRun::parse(&text, &[])?;
        if !written.open().is_empty()
            || written.complete(&Choices::of(&plan.file()))? != plan.file()
        {
            return Err(Failure::arguments(
                "the settings cannot be written as a run file; write it by hand",
            ));
        }
        let timed = match at_hand {
            true => Some(rehearse(&plan, &device)?),
            false => None,
        };
        let resolved = match &timed {
            Some(found) => found.resolved.clone(),
            None => calibrate(&plan, plan.units(count.units), labels.as_ref().map_or(2, Vec::len))?,
        };
        write_atomically(&self.out, |out| out.write_all(text.as_bytes()))?;
        let time = timed.as_ref().and_then(seconds);
        let steps = resolved.steps_per_epoch * u64::from(plan.training.epochs);
        if output.json {
            output::json(&json!({
                "file": self.out,
                "columns": names,
                "rows": count.rows,
                "units": count.units,
                "epsilon": self.epsilon,
                "delta": plan.delta(),
                "noise_multipliers": resolved.noise_multipliers,
                "steps": steps,
                "seconds": time,
                "plan": plan.file(),
            }));
            return Ok(());
        }
        let unit = match &columns.author {
            Some(author) => format!("all rows of one {author}"),
            None => "one row".to_owned(),
        };
        let mut rows = vec![
            ("columns", names.join(", ")),
            ("rows", format!("{}, of {} units ({unit})", count.rows, count.units)),
            ("task", told(&columns)),
            ("model", model.to_owned()),
            ("budget", format!("ε = {}, δ = {:e}", self.epsilon, plan.delta().unwrap_or_default())),
            ("noise multiplier σ", noise(&resolved.noise_multipliers)),
            (
                "training",
                format!(
                    "{steps} steps of {} units on average, {} epochs",
                    plan.training.batch, plan.training.epochs
                ),
            ),
            (
                "time",
                match (time, at_hand) {
                    (Some([short, long]), _) => {
                        format!(
                            "{} with short texts, {} with long ones",
                            spoken(short),
                            spoken(long)
                        )
                    }
                    _ => "not measured: the model is not on this machine yet".to_owned(),
                },
            ),
            ("written", self.out.display().to_string()),
        ];
        if columns.task == TaskName::Classification && labels.is_none() {
            rows.push((
                "labels",
                "classes are found in the file when the run begins, and published as numbers; \
                 --labels names them"
                    .to_owned(),
            ));
        }
        output::rows(&rows);
        let file = self.out.display();
        output::line(format_args!(
            "next:\n  undertone train {file} --dry-run       # what it will do, how long it \
             takes\n  undertone train {file} --out runs/first"
        ));
        Ok(())
    }

    /// Label names that may be written down: those that were given, or may be read.
    fn labels(&self, columns: &Columns, person: &mut dyn Asked) -> Outcome<Option<Vec<String>>> {
        let Some(column) = &columns.label else { return Ok(None) };
        if !self.columns.labels.is_empty() {
            return Ok(Some(self.columns.labels.clone()));
        }
        let may_read = self.read_labels
            || person.confirm(&format!(
                "Write the names that column {column} holds into the run file? They become public."
            ));
        if !may_read {
            return Ok(None);
        }
        let format = format_of(&self.data, None)?;
        let found = Labels::from_file(&self.data, format, column, OnBadRow::Refuse)?;
        Ok(Some(found.names().to_vec()))
    }
}

/// A small model of the right kind.
fn usual_model(task: TaskName) -> &'static str {
    match task {
        TaskName::Classification => "sentence-transformers/all-MiniLM-L6-v2",
        TaskName::MaskedLanguageModelling => "distilbert/distilbert-base-uncased",
        TaskName::LanguageModelling | TaskName::Completion => "distilbert/distilgpt2",
        TaskName::Chat => "HuggingFaceTB/SmolLM2-135M-Instruct",
    }
}

/// The task and its columns in words.
fn told(columns: &Columns) -> String {
    let text = columns.text.join(" and ");
    let of = match (&columns.label, &columns.prompt, &columns.completion) {
        (Some(label), ..) => format!("{label} from {text}"),
        (_, Some(prompt), Some(completion)) => format!("{completion} from {prompt}"),
        _ => text,
    };
    format!("{}: {of}", name_of(columns.task))
}
