//! audit.json: what attacks on the run found.

use super::{number_or_nan, parse};
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
    /// Private things that the model wrote by itself.
    #[serde(default)]
    pub extraction: Vec<Extracted>,
    /// Private things that were masked.
    #[serde(default)]
    pub reconstruction: Vec<Reconstructed>,
    /// All attacks beside those on other models.
    #[serde(default)]
    pub all: Vec<Figure>,
}

/// A figure and where it lies.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Interval {
    /// The lower end.
    #[serde(deserialize_with = "number_or_nan")]
    pub lower: f64,
    /// The figure.
    #[serde(deserialize_with = "number_or_nan")]
    pub estimate: f64,
    /// The upper end.
    #[serde(deserialize_with = "number_or_nan")]
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
    /// Whether the guesses are too good for the whole curve that the ledger proves.
    pub promised_curve_is_refuted: Option<bool>,
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
    /// By the pretrained model.
    #[serde(rename = "pretrained", alias = "untouched")]
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

/// What the model wrote of one kind of private thing.
#[derive(Clone, Debug, Deserialize)]
pub struct Extracted {
    /// Of which kind.
    pub kind: String,
    /// Things in the training texts that the pretrained model does not write.
    pub in_training: u64,
    /// Different things that the trained model wrote, without those of the pretrained one.
    pub written: u64,
    /// How many of them are in the training texts.
    pub right: u64,
    /// Share of what is in the training texts that was written.
    pub recall: Interval,
}

/// How often a masked private thing was found.
#[derive(Clone, Debug, Deserialize)]
pub struct Reconstructed {
    /// Of which kind.
    pub kind: String,
    /// By the trained model.
    pub trained: Ranked,
    /// By the pretrained model.
    #[serde(rename = "pretrained", alias = "untouched")]
    pub untouched: Ranked,
}

/// How often the likeliest candidate was right.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Ranked {
    /// Masked texts.
    pub targets: u64,
    /// How often the likeliest candidate was right.
    pub top_1: Interval,
}

/// A figure of the run, of a non-private run and of the pretrained model.
#[derive(Clone, Debug, Deserialize)]
pub struct Figure {
    /// Of which attack.
    pub attack: String,
    /// `area`, `share` or `bits`.
    pub measure: String,
    /// Of the run.
    pub run: Interval,
    /// Of a non-private run; files of version 0.1 call it `open`.
    #[serde(rename = "non_private", alias = "open")]
    pub open: Option<Interval>,
    /// Of the pretrained model; files of version 0.1 call it `untouched`.
    #[serde(rename = "pretrained", alias = "untouched")]
    pub untouched: Option<Interval>,
    /// What somebody who knows nothing would get.
    pub guessing: Option<f64>,
}

impl Audit {
    /// Whether no attack was made.
    pub fn is_empty(&self) -> bool {
        let Self { membership, one_run, exposure, extraction, reconstruction, all } = self;
        membership.is_empty()
            && one_run.is_none()
            && exposure.is_empty()
            && extraction.is_empty()
            && reconstruction.is_empty()
            && all.is_empty()
    }

    /// Reads the file; nothing was found if it is not there.
    pub fn read(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => parse(path, &text),
            Err(_) => Ok(Self::default()),
        }
    }
}
