//! audit.json: what attacks on the run found.

use super::parse;
use crate::error::Result;
use serde::Deserialize;
use std::path::Path;

/// What attacks found; each part is there if its attack was made.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Audit {
    /// Members told from others.
    #[serde(default)]
    pub membership: Vec<Attack>,
    /// The lower bound on ε from one training run with canaries.
    pub one_run: Option<OneRun>,
    /// Planted secrets.
    #[serde(default)]
    pub exposure: Vec<Exposed>,
}

/// A figure and where it lies.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub lower: f64,
    /// The figure.
    pub estimate: f64,
    /// The upper end.
    pub upper: f64,
}

/// How well an attack tells members from others.
#[derive(Clone, Debug, Deserialize)]
pub struct Attack {
    /// Its name.
    pub attack: String,
    /// Area under the curve.
    pub auc: Interval,
    /// True positives at one false alarm in a thousand.
    pub rate_at_0_1_percent: Interval,
    /// The same for one in a hundred.
    pub rate_at_1_percent: Interval,
    /// Examples that were trained on.
    pub members: u64,
    /// Examples that were not.
    pub others: u64,
    /// (false positive rate, true positive rate).
    #[serde(default)]
    pub roc: Vec<(f64, f64)>,
}

/// What canaries showed.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct OneRun {
    /// Canaries.
    pub canaries: u64,
    /// Guesses.
    pub guesses: u64,
    /// Right ones.
    pub right: u64,
    /// ε is at least this.
    pub epsilon_lower: f64,
    /// δ of the statement.
    pub delta: f64,
    /// Probability that the statement is right.
    pub confidence: f64,
}

/// One planted secret.
#[derive(Clone, Debug, Deserialize)]
pub struct Exposed {
    /// The text around it.
    pub text: String,
    /// By the trained model.
    pub trained: Bits,
    /// By the model that it began from.
    pub untouched: Bits,
}

/// An exposure.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Bits {
    /// How many bits of the secret show.
    pub bits: f64,
    /// How many it has.
    pub most: f64,
    /// Whether all candidates were asked for.
    pub exact: bool,
}

impl Audit {
    /// Reads the file; nothing was found if it is not there.
    pub fn read(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => parse(path, &text),
            Err(_) => Ok(Self::default()),
        }
    }
}
