//! summary.json, as far as it is shown. What is not known is passed over; what is missing is an
//! error.

use super::number_or_nan;
use super::plan::Plan;
use serde::Deserialize;
use undertone_accounting::Guarantee;

/// What a finished run says about itself.
#[derive(Clone, Debug, Deserialize)]
pub struct Summary {
    /// Whether the guarantee holds.
    pub private: bool,
    /// Why not, if not.
    pub not_private_because: Option<String>,
    /// What the ledger proved when the run ended.
    pub guarantee: Option<Guarantee>,
    /// What the paper would print, in paper mode.
    pub claimed: Option<Claim>,
    /// How good the model is.
    pub metrics: Measured,
    /// What the files were used for, besides training.
    pub selection: String,
    /// About the perturbation of records, where they are.
    pub records: Option<Perturbed>,
    /// How fast it went.
    pub throughput: Throughput,
    /// The most memory that the process had.
    pub peak_memory_bytes: Option<u64>,
    /// Steps taken.
    pub steps: u64,
    /// Numbers that were trained, and all of the model's.
    pub parameters: Counts,
    /// How much noise each trained parameter had, relative to the mean.
    #[serde(default)]
    pub noise_by_parameter: Vec<(String, f64)>,
    /// The relevance that the noise went by.
    #[serde(default)]
    pub relevance_by_parameter: Vec<(String, f64)>,
    /// What the plan came to on the data.
    pub resolved: Resolved,
    /// The hash of the ledger's last line.
    pub ledger_hash: Option<String>,
    /// The run file with every default.
    pub plan: Plan,
}

/// The ε of a method's own accounting, which does not hold.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Claim {
    /// ε.
    pub epsilon: f64,
    /// δ.
    pub delta: f64,
}

/// By file.
#[derive(Clone, Debug, Deserialize)]
pub struct Measured {
    /// On the validation file.
    pub validation: Option<Measures>,
    /// On the validation file, when its texts are perturbed as the records were.
    pub validation_with_noise: Option<Measures>,
}

/// Figures of a classifier, or of a language model.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Measures {
    /// Of a classifier.
    Classification {
        /// Examples with a label.
        examples: usize,
        /// Share that is right.
        #[serde(deserialize_with = "number_or_nan")]
        accuracy: f64,
        /// Harmonic mean of precision and recall.
        #[serde(deserialize_with = "number_or_nan")]
        f1: f64,
        /// Mean cross-entropy.
        #[serde(deserialize_with = "number_or_nan")]
        loss: f64,
        /// `confusion[truth][prediction]`.
        confusion: Vec<Vec<u64>>,
    },
    /// Of a language model.
    Language {
        /// Texts.
        examples: usize,
        /// Tokens that were predicted.
        tokens: usize,
        /// Mean cross-entropy of a token.
        #[serde(deserialize_with = "number_or_nan")]
        loss: f64,
        /// e to the loss.
        #[serde(deserialize_with = "number_or_nan")]
        perplexity: f64,
    },
}

impl Measures {
    /// The name of the figure that models are compared by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Classification { .. } => "accuracy",
            Self::Language { .. } => "perplexity",
        }
    }

    /// The figure that models are compared by; accuracy in percent.
    pub fn main(&self) -> f64 {
        match self {
            Self::Classification { accuracy, .. } => 100.0 * accuracy,
            Self::Language { perplexity, .. } => *perplexity,
        }
    }

    /// The same as people read it.
    pub fn shown(&self) -> String {
        match self {
            Self::Classification { .. } => format!("{:.2} %", self.main()),
            Self::Language { .. } => format!("{:.3}", self.main()),
        }
    }

    /// Mean cross-entropy.
    pub fn loss(&self) -> f64 {
        match self {
            Self::Classification { loss, .. } | Self::Language { loss, .. } => *loss,
        }
    }
}

/// About the perturbation of records.
#[derive(Clone, Debug, Deserialize)]
pub struct Perturbed {
    /// Columns of what is released.
    pub width: usize,
    /// What encoder and decoder lose.
    pub reconstruction_error: Option<f64>,
    /// Deviation of the loudest column's noise over that of the quietest's.
    pub loudest_over_quietest: Option<f64>,
}

/// How fast it went.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Throughput {
    /// Examples per second of training.
    pub examples_per_second: f64,
    /// Seconds of training.
    pub seconds: f64,
}

/// Parameters by number.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Counts {
    /// Trained.
    pub trainable: u64,
    /// All.
    pub total: u64,
}

/// What the plan came to on the data.
#[derive(Clone, Debug, Deserialize)]
pub struct Resolved {
    /// Privacy units in the training file.
    pub units: u64,
    /// Steps in an epoch.
    pub steps_per_epoch: u64,
    /// The probability with which each unit joins a step.
    pub sampling_rate: Option<f64>,
    /// For each epoch.
    pub noise_multipliers: Vec<f64>,
    /// Of each record, where records are perturbed.
    pub releases: Option<Releases>,
}

/// How records are released.
#[derive(Clone, Debug, Deserialize)]
pub struct Releases {
    /// Once, along a path, or fresh in every epoch.
    pub release: String,
    /// How far replacing a record moves what is released, in norms.
    pub sensitivity: f64,
    /// How many records a privacy unit has at most.
    pub records_per_unit: u64,
}
