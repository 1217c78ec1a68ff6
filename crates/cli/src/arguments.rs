//! Arguments shared by several commands, each with one name, help text and check.

use crate::failure::Outcome;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::path::{Path, PathBuf};
use undertone_accounting::Accountant;
use undertone_report::plot;
use undertone_run::audit::Trial;
use undertone_run::check_output;

/// Seed of an attack. It need not be secret: attacks release nothing.
#[derive(Args, Clone, Copy)]
pub struct SeedArgument {
    /// Random seed; the same seed gives the same result
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Number of repetitions of an attack.
#[derive(Args, Clone, Copy)]
pub struct TrialsArgument {
    /// Number of trials, with consecutive seeds starting at `--seed`; all are saved in audit.json
    #[arg(long, default_value_t = 1, value_parser = up_to(10_000))]
    pub trials: usize,
}

impl TrialsArgument {
    /// Runs the attack once per seed.
    pub fn each<T>(
        self,
        first: SeedArgument,
        mut attack: impl FnMut(SeedArgument) -> Outcome<Vec<T>>,
    ) -> Outcome<Vec<Trial<T>>> {
        let mut trials = Vec::new();
        for seed in (0..self.trials as u64).map(|trial| first.seed.wrapping_add(trial)) {
            trials.push(Trial { seed, found: attack(SeedArgument { seed })? });
        }
        Ok(trials)
    }
}

/// Confidence level of intervals and bounds.
#[derive(Args, Clone, Copy)]
pub struct ConfidenceArgument {
    /// Confidence level of intervals and bounds, at least 0.5 and below 1
    #[arg(long, default_value_t = 0.95, value_parser = confidence)]
    pub confidence: f64,
}

impl ConfidenceArgument {
    pub fn percent(self) -> f64 {
        100.0 * self.confidence
    }
}

fn confidence(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|confidence| (0.5..1.0).contains(confidence))
        .ok_or_else(|| "must be a number from 0.5 to below 1".to_owned())
}

/// The run to attack.
#[derive(Args)]
pub struct RunArgument {
    /// Folder of a finished run
    #[arg(long, value_name = "DIR")]
    pub run: PathBuf,
}

/// Overrides of run-file keys.
#[derive(Args, Clone)]
pub struct ChangeArguments {
    /// Override a key of the run file (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Remove a key from the run file (repeatable)
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
}

impl ChangeArguments {
    /// The overrides, removals first: a key that is both removed and set keeps the value set.
    pub fn changes(&self) -> Vec<String> {
        let unset = self.unset.iter().map(|key| format!("-{key}"));
        unset.chain(self.set.iter().cloned()).collect()
    }

    /// These overrides and one more.
    pub fn with(&self, change: Option<String>) -> Self {
        let mut all = self.clone();
        all.set.extend(change);
        all
    }
}

/// A model, by folder or name.
#[derive(Args)]
pub struct ModelArgument {
    /// Model folder, or model name on the Hugging Face Hub
    #[arg(long, value_name = "DIR|NAME")]
    pub model: String,
}

/// Accountant of a `budget` command.
#[derive(Args, Clone, Copy)]
pub struct AccountantArgument {
    /// Accountant to use
    #[arg(long, value_enum, default_value_t)]
    pub accountant: Accountant,
}

/// Target budget (ε, δ) to calibrate the noise to.
#[derive(Args, Clone, Copy)]
pub struct TargetArguments {
    /// Target ε; the certified upper bound does not exceed it
    #[arg(long)]
    pub epsilon: f64,
    /// Target δ; should be well below 1 / number of privacy units
    #[arg(long)]
    pub delta: f64,
}

/// Parses a count from 1 to `most`; larger counts would exhaust time or memory.
pub fn up_to(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most)
}

/// Like [`up_to`], but also accepts 0.
pub fn none_or_up_to(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(0..=most)
}

/// Output file of an optional plot.
#[derive(Args)]
pub struct PlotArgument {
    /// Plot the result to an SVG file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl PlotArgument {
    /// The plot's file, if requested; the file must not exist or must be an earlier plot.
    pub fn file(&self) -> Outcome<Option<&Path>> {
        if let Some(path) = &self.plot {
            check_output(path, &[], |text| text.ends_with(plot::MARK))?;
        }
        Ok(self.plot.as_deref())
    }
}
