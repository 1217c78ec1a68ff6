//! The commented run file that `undertone init` writes.

use super::columns::{Columns, ControlCode};
use crate::source::{key_of_model, list, name_of, quoted, quoted_path};
use std::path::Path;
use undertone_run::{
    Choices, Clip, LearningRateSchedule, OptimizerKind, SynthesisSection, TaskName, Tuning,
};

/// The contents of the file.
pub struct Draft<'a> {
    pub model: &'a str,
    pub data: &'a Path,
    pub validation: Option<&'a Path>,
    pub columns: &'a Columns,
    /// The control code of synthetic rows, if the run is to write some.
    pub synthesis: Option<&'a ControlCode>,
    /// Names of the labels, if they may be written down.
    pub labels: Option<&'a [String]>,
    pub epsilon: f64,
    /// Number of privacy units that the recipe's choices are for.
    pub units: u64,
    pub declared_units: Option<u64>,
    pub max_tokens: usize,
}

impl Draft<'_> {
    /// The file without the recipe's settings, which the recipe takes as input.
    pub fn short(&self) -> String {
        self.text(None)
    }

    /// The file with the recipe's settings.
    pub fn text(&self, chosen: Option<&Choices>) -> String {
        let mut text = String::from(
            "# Written by undertone init, for undertone train.\n\
             # Keys and their meaning: docs/formats.md; how to choose them: docs/choosing.md.\n",
        );
        let mut add = |key: &str, value: String, why: &str| {
            // A section has no value.
            let line = match value.as_str() {
                "" => format!("\n[{key}]"),
                value => format!("{key} = {value}"),
            };
            match why {
                "" => text += &format!("{line}\n"),
                why => text += &format!("{line:<38} # {why}\n"),
            }
        };
        add("model", String::new(), "");
        add(key_of_model(self.model), quoted(self.model), "");
        if let Some(chosen) = chosen {
            add("tuning", tuning(&chosen.tuning), "trainable parameters");
        }
        add("data", String::new(), "");
        let columns = self.columns;
        add("task", quoted(name_of(columns.task)), "");
        add("train", quoted_path(self.data), "private");
        match self.validation {
            Some(path) => {
                add("validation", quoted_path(path), "must be public if its metrics are published");
            }
            None => {
                add(
                    "# validation",
                    quoted("dev.csv"),
                    "a file to evaluate on, with the same \
                                                        columns",
                );
            }
        }
        match columns.text.as_slice() {
            [] => {}
            [single] => add("text", quoted(single), ""),
            more => add("text", list(more), "a pair, read as two parts of one text"),
        }
        for (key, column) in [
            ("label", &columns.label),
            ("prompt", &columns.prompt),
            ("completion", &columns.completion),
            ("messages", &columns.messages),
        ] {
            if let Some(column) = column {
                add(key, quoted(column), "");
            }
        }
        if columns.task == TaskName::Classification {
            match self.labels {
                Some(names) => add("labels", list(names), "public"),
                None => {
                    let example = list(&["no".to_owned(), "yes".to_owned()]);
                    add(
                        "# labels",
                        example,
                        "if omitted, read from the file and published as numbers",
                    );
                }
            }
        }
        add("max_tokens", self.max_tokens.to_string(), "longer texts are cut");
        match &columns.author {
            Some(author) => {
                add("author", quoted(author), "the unit: all rows of an author");
            }
            None => add("# author", quoted("user"), "set this if one person can have several rows"),
        }
        if let Some(code) = self.synthesis {
            add("synthesis", String::new(), "");
            if let Some((column, values)) = &code.0 {
                let codes = format!("{{ {} = {} }}", quoted(column), list(values));
                add("codes", codes, "public");
            }
            add("rows", SynthesisSection::default().rows.to_string(), "any number costs the same");
        }
        add("privacy", String::new(), "");
        add("method", quoted("dp-sgd"), "");
        add(
            "epsilon",
            format!("{:?}", self.epsilon),
            "the privacy budget: smaller is more \
                                                       private",
        );
        match self.declared_units {
            Some(units) => add("units", units.to_string(), "declared: the true number is private"),
            None if chosen.is_some() => {
                let example = one_digit(self.units).to_string();
                add("# units", example, "declare a number to keep the true one private");
            }
            None => {}
        }
        let Some(chosen) = chosen else { return text };
        add(
            "delta",
            format!("{:e}", chosen.delta),
            &format!("well below 1/{}, one over the number of units", self.units),
        );
        if let Clip::Flat(bound) = chosen.clip {
            add("clip", format!("{bound:?}"), "clipping norm of each gradient");
        }
        add("training", String::new(), "");
        add("epochs", chosen.epochs.to_string(), "more steps, each with more noise");
        add("batch", chosen.batch.to_string(), "average number of units per step");
        add("learning_rate", format!("{:?}", chosen.learning_rate), "");
        let schedule = match chosen.learning_rate_schedule {
            LearningRateSchedule::Constant => "constant",
            LearningRateSchedule::Linear => "linear",
            LearningRateSchedule::Cosine => "cosine",
        };
        add("learning_rate_schedule", quoted(schedule), "");
        add("warmup", format!("{:?}", chosen.warmup), "");
        let optimizer = match chosen.optimizer {
            OptimizerKind::Sgd => "sgd",
            OptimizerKind::Adamw => "adamw",
            OptimizerKind::AdamCorrected => "adam-corrected",
        };
        add("optimizer", quoted(optimizer), "");
        text += "# The recipe chose these settings. It chooses a setting again if you delete its \
                 line.\n";
        text
    }
}

/// The number rounded to its first digit.
fn one_digit(number: u64) -> u64 {
    let unit = 10_u64.pow(number.max(1).ilog10());
    (number + unit / 2) / unit * unit
}

/// The setting as TOML on one line.
fn tuning(tuning: &Tuning) -> String {
    match tuning {
        Tuning::Lora(lora) => {
            format!("{{ lora = {{ rank = {}, alpha = {} }} }}", lora.rank, lora.alpha)
        }
        other => quoted(other.name()),
    }
}
