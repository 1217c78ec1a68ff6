//! `undertone init`: creates a run file with good settings from a data file.
//!
//! Of the private file, only the columns and the numbers of rows and units are printed; labels are
//! written only if the user agrees.

mod columns;
mod stats;
mod write;

use crate::device::DeviceArguments;
use crate::dry_run::{self, noise, seconds};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::source::{ColumnArguments, KeyArguments, name_of, resolve};
use crate::typical::TypicalArguments;
use clap::Args;
use columns::{Asked, Columns, Person, perhaps_author};
use serde_json::json;
use stats::FromStatistics;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use undertone::data::{Format, Labels, format_of, read};
use undertone::method::calibrate;
use undertone::model::folder::is_at_hand;
use undertone::train::rehearse_model;
use undertone::{Population, units_of};
use undertone_accounting::limits;
use undertone_run::{Choices, MAX_TOKENS, OnBadRow, TaskName, WrittenRun, write_atomically};
use write::Draft;

/// Inspect a data file and write a run file with recommended settings
///
/// Finds the columns by flags or by their usual names, and otherwise asks on a terminal. Prints
/// only the column names and the number of rows and privacy units of the file, and whether all rows
/// have the same label.
#[derive(Args)]
#[command(after_help = "Examples:\n  undertone init letters.csv --epsilon 8\n  undertone init \
     letters.csv --model models/all-MiniLM-L6-v2 --text text --label topic --author customer")]
pub struct Init {
    /// Private data file: CSV, TSV, JSON Lines, Parquet or plain text
    data: PathBuf,
    /// Model folder, or model name on the Hugging Face Hub [default: a small model for the task]
    #[arg(long, value_name = "DIR|NAME")]
    model: Option<String>,
    /// Target ε
    #[arg(long, default_value_t = 8.0)]
    epsilon: f64,
    #[command(flatten)]
    columns: ColumnArguments,
    /// Declared number of privacy units, which keeps the true number private
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX))
    )]
    units: Option<u64>,
    /// Private statistics of the file (statistics.json of `undertone stats`), used instead of exact
    /// counts: number of units, labels and maximum length
    #[arg(long, value_name = "FILE", conflicts_with_all = ["units", "read_labels", "typical_tokens", "sample"])]
    stats: Option<PathBuf>,
    /// Use the row as the privacy unit, even if there is an author column
    #[arg(long, conflicts_with = "author")]
    no_author: bool,
    /// Write the label names found in the file to the run file, which makes them public
    #[arg(long, conflicts_with = "labels")]
    read_labels: bool,
    /// Write a run file for `undertone synthesize`: the label, if there is one, becomes a control
    /// code in front of the text
    #[arg(long)]
    synthesize: bool,
    /// Run file to write
    #[arg(long, value_name = "FILE", default_value = "run.toml")]
    out: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    /// Do not load the model to estimate the time of the run
    #[arg(long, conflicts_with_all = ["typical_tokens", "sample"])]
    no_timing: bool,
    #[command(flatten)]
    typical: TypicalArguments,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    keys: KeyArguments,
}

impl Init {
    pub fn run(self, output: Output) -> Outcome {
        let allowed = limits::LEAST_EPSILON..=limits::EPSILON;
        if !allowed.contains(&self.epsilon) {
            let (least, most) = (allowed.start(), allowed.end());
            return Err(Failure::arguments(format!(
                "--epsilon is {}, but must be from {least} to {most}",
                self.epsilon
            )));
        }
        let format = format_of(&self.data, None)?;
        let names = read::nested_columns(&self.data, format)?;
        if self.out.exists() && !self.force {
            return Err(Failure::arguments(format!(
                "{} exists; choose another file with --out, or overwrite it with --force",
                self.out.display()
            )));
        }
        let mut person = Person;
        let mut columns = Columns::find(&names, &self.columns, !self.no_author, &mut person)?;
        let statistics = self.stats.as_deref().map(FromStatistics::read).transpose()?;
        if let Some(statistics) = &statistics {
            statistics.check(&columns)?;
        }
        if let (Some(label), None) = (&columns.label, &statistics) {
            self.warn_of_one_label(label, format)?;
        }
        let mut labels = match &statistics {
            Some(statistics) if self.columns.labels.is_empty() => statistics.labels(columns.task),
            _ => self.labels(&columns, &mut person)?,
        };
        let declared_units = match &statistics {
            Some(statistics) => Some(statistics.units()?),
            None => self.units,
        };
        let usual_length = statistics.as_ref().and_then(FromStatistics::max_tokens);
        let synthesis = match self.synthesize {
            true => Some(columns.as_records(labels.take())?),
            false => None,
        };
        let model = self.model.as_deref().unwrap_or(usual_model(columns.task));
        let mut draft = Draft {
            model,
            data: &self.data,
            validation: self.columns.validation.as_deref(),
            columns: &columns,
            labels: labels.as_deref(),
            synthesis: synthesis.as_ref(),
            epsilon: self.epsilon,
            units: 0,
            declared_units,
            max_tokens: self.keys.max_tokens.or(usual_length).unwrap_or(MAX_TOKENS),
        };
        let device = self.device.device()?;
        let at_hand = is_at_hand(model);
        let short = WrittenRun::parse(&draft.short(), &self.keys.changes())?;
        // With statistics, nothing is counted.
        let count = match &statistics {
            Some(_) => None,
            None => Some(units_of(short.data())?),
        };
        let counted = count.as_ref().map_or(0, |count| count.units);
        draft.units = declared_units.unwrap_or(counted as u64);
        let plan = match at_hand {
            true => resolve(&short, None, &device)?.plan,
            false => undertone::Plan::resolve_without_model(&short, &device)?,
        };
        let text = draft.text(Some(&Choices::of(&plan.file())));
        // The written file must contain the chosen values.
        let written = WrittenRun::parse(&text, &[])?;
        if !written.open().is_empty()
            || written.complete(&Choices::of(&plan.file()))? != plan.file()
        {
            return Err(Failure::arguments(
                "the settings cannot be written as a run file; write it by hand",
            ));
        }
        // The time of an epoch is that of the true number of rows.
        let timed = match at_hand && !self.no_timing && statistics.is_none() {
            true => {
                let typical = self.typical.length(&plan)?;
                Some((rehearse_model(&plan, &device, typical.tokens)?, typical))
            }
            false => None,
        };
        let resolved = match &timed {
            Some((rehearsal, _)) => rehearsal.resolved.clone(),
            None => {
                let examples = count.as_ref().map_or(counted, |count| count.examples);
                let population = Population { units: plan.units(counted), examples };
                calibrate(&plan, population, labels.as_ref().map_or(2, Vec::len))?
            }
        };
        write_atomically(&self.out, |out| out.write_all(text.as_bytes()))?;
        let steps = resolved.steps_per_epoch * u64::from(plan.training.epochs);
        if output.json {
            output::json(&json!({
                "file": self.out,
                "columns": names,
                "rows": count.as_ref().map(|count| count.rows),
                "units": count.as_ref().map_or(draft.units, |count| count.units as u64),
                "epsilon": self.epsilon,
                "delta": plan.delta(),
                "noise_multipliers": resolved.noise_multipliers,
                "steps": steps,
                "seconds": timed.as_ref().and_then(|(rehearsal, _)| seconds(rehearsal)),
                "plan": plan.file(),
            }));
            return Ok(());
        }
        let mut rows = vec![
            ("columns", names.join(", ")),
            (
                "rows",
                match &count {
                    Some(count) => format!("{}, of {} units", count.rows, count.units),
                    None => format!("about {} units, by the private statistics", draft.units),
                },
            ),
            ("unit", unit(&names, &columns)),
            ("task", task_and_columns(&columns)),
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
                match &timed {
                    Some((rehearsal, typical)) => dry_run::time(rehearsal, typical)
                        .unwrap_or_else(|| "not measured for methods of local DP".to_owned()),
                    None if at_hand => "not measured".to_owned(),
                    None => "not measured: the model is not on this machine yet".to_owned(),
                },
            ),
            ("written", self.out.display().to_string()),
        ];
        if columns.task == TaskName::Classification && labels.is_none() {
            rows.push((
                "labels",
                "class names are read from the file when the run starts and published as numbers; \
                 --labels publishes names"
                    .to_owned(),
            ));
        }
        output::rows(&rows);
        let file = self.out.display();
        if self.synthesize {
            output::line(format_args!("next:\n  undertone synthesize {file} --out runs/first"));
            return Ok(());
        }
        output::line(format_args!(
            "next:\n  undertone train {file} --dry-run       # what it will do, how long it \
             takes\n  undertone train {file} --out runs/first"
        ));
        Ok(())
    }

    /// Warns if every row has the same label.
    fn warn_of_one_label(&self, label: &str, format: Format) -> Outcome {
        let mut first = None;
        for row in read::rows(&self.data, format, &[label])? {
            let value = row?.values.pop();
            if first.get_or_insert_with(|| value.clone()) != &value {
                return Ok(());
            }
        }
        output::note(format_args!(
            "warning: column {label:?} has the same value in every row, so there is nothing to \
             learn; choose another one with --label"
        ));
        Ok(())
    }

    /// Label names that may be written: those given by the user, or those that may be read from the
    /// file.
    fn labels(&self, columns: &Columns, person: &mut dyn Asked) -> Outcome<Option<Vec<String>>> {
        let Some(column) = &columns.label else { return Ok(None) };
        if !self.columns.labels.is_empty() {
            return Ok(Some(self.columns.labels.clone()));
        }
        let may_read = self.read_labels
            || person.confirm(&format!(
                "Write the class names found in column {column} to the run file? This makes them \
                 public."
            ));
        if !may_read {
            return Ok(None);
        }
        let format = format_of(&self.data, None)?;
        let labels =
            Labels::from_file(&self.data, format, column, OnBadRow::Refuse, &BTreeMap::new())?;
        Ok(Some(labels.names().to_vec()))
    }
}

/// The privacy unit in words, and how to choose another one.
fn unit(names: &[String], columns: &Columns) -> String {
    if let Some(author) = &columns.author {
        return format!("all rows of one {author} (--no-author: each row by itself)");
    }
    match perhaps_author(names, columns) {
        Some(name) => format!(
            "one row; {name} may say whose it is: use --author {name} to protect a person's rows \
             together"
        ),
        None => "one row; use --author COLUMN to protect a person's rows together".to_owned(),
    }
}

/// A small model for the task.
fn usual_model(task: TaskName) -> &'static str {
    match task {
        TaskName::Classification => "sentence-transformers/all-MiniLM-L6-v2",
        TaskName::MaskedLanguageModeling => "distilbert/distilbert-base-uncased",
        TaskName::LanguageModeling | TaskName::Completion => "distilbert/distilgpt2",
        TaskName::Chat => "HuggingFaceTB/SmolLM2-135M-Instruct",
    }
}

/// The task and its columns in words.
fn task_and_columns(columns: &Columns) -> String {
    let text = columns.text.join(" and ");
    let of = match (&columns.label, &columns.prompt, &columns.completion) {
        (Some(label), ..) => format!("{label} from {text}"),
        (_, Some(prompt), Some(completion)) => format!("{completion} from {prompt}"),
        _ => text,
    };
    format!("{}: {of}", name_of(columns.task))
}
