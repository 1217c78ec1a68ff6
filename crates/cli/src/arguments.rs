//! Arguments that several verbs share: each has one name, one help text and one check.

use crate::failure::Outcome;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::path::{Path, PathBuf};
use undertone_accounting::Accountant;
use undertone_report::plot;
use undertone_run::audit::Trial;
use undertone_run::check_output;

/// The seed of an attack. It is no secret: nothing that an attack draws is released.
#[derive(Args, Clone, Copy)]
pub struct SeedArgument {
    /// Seed of everything that is drawn at random: the same seed gives the same answer
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// How often an attack is made.
#[derive(Args, Clone, Copy)]
pub struct TrialsArgument {
    /// Trials, each with a seed of its own from --seed on; all are kept in audit.json
    #[arg(long, default_value_t = 1, value_parser = up_to(10_000))]
    pub trials: usize,
}

impl TrialsArgument {
    /// Makes every trial, by its seed.
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

/// How sure an interval or a bound is.
#[derive(Args, Clone, Copy)]
pub struct ConfidenceArgument {
    /// Confidence of intervals and bounds, from 0.5 to below 1
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

/// The run that is attacked.
#[derive(Args)]
pub struct RunArgument {
    /// Folder of the finished run
    #[arg(long, value_name = "DIR")]
    pub run: PathBuf,
}

/// Changes to a run file.
#[derive(Args)]
pub struct ChangeArguments {
    /// Change a key of the run file; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Remove a key of the run file; may be given several times
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
}

impl ChangeArguments {
    /// Removals first: a key that is removed and set has the value that is set.
    pub fn changes(&self) -> Vec<String> {
        let unset = self.unset.iter().map(|key| format!("-{key}"));
        unset.chain(self.set.iter().cloned()).collect()
    }
}

/// A model by its folder or its name.
#[derive(Args)]
pub struct ModelArgument {
    /// Model folder, or the model's name on the Hugging Face hub
    #[arg(long, value_name = "DIR|NAME")]
    pub model: String,
}

/// The accountant of a `budget` verb.
#[derive(Args, Clone, Copy)]
pub struct AccountantArgument {
    /// Which accountant computes the answer
    #[arg(long, value_enum, default_value_t)]
    pub accountant: Accountant,
}

/// The budget that noise is calibrated to.
#[derive(Args, Clone, Copy)]
pub struct TargetArguments {
    /// Target ε: the certified upper bound will not exceed it
    #[arg(long)]
    pub epsilon: f64,
    /// Target δ: should be well below one over the number of units
    #[arg(long)]
    pub delta: f64,
}

/// Parses a count from 1 to `most`: a larger one would take for ever, or all memory.
pub fn up_to(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most)
}

/// As [`up_to`], where 0 means none.
pub fn none_or_up_to(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(0..=most)
}

/// Where a chart goes, if one is wanted.
#[derive(Args)]
pub struct PlotArgument {
    /// Draw a chart of the answer
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl PlotArgument {
    /// The file of the chart, if one is wanted: a new one, or an earlier chart.
    pub fn file(&self) -> Outcome<Option<&Path>> {
        if let Some(path) = &self.plot {
            check_output(path, &[], |text| text.ends_with(plot::MARK))?;
        }
        Ok(self.plot.as_deref())
    }
}
