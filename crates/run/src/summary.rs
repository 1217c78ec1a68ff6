//! summary.json: what a finished run says about itself.

use crate::error::{Error, Result};
use crate::file::RunFile;
use crate::metrics::Metrics;
use crate::resolved::Resolved;
use crate::{FORMAT_VERSION, check_format};
use serde::{Deserialize, Serialize};
use std::path::Path;
use undertone_accounting::Guarantee;

/// summary.json.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// Version of the folder's layout; 1 had no such key.
    #[serde(default = "first_format")]
    pub format: u32,
    /// Whether the guarantee holds: not for a non-private run, and not for a seeded one.
    pub private: bool,
    /// Why not, if not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_private_because: Option<String>,
    /// What the ledger proves.
    pub guarantee: Option<Guarantee>,
    /// What the paper would print, in paper mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Claim>,
    /// Metrics of the trained model.
    pub metrics: ValidationMetrics,
    /// What the files were used for besides training.
    pub selection: String,
    /// About the perturbed embeddings, in local DP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<PerturbationFacts>,
    /// Examples per second.
    pub throughput: Throughput,
    /// Peak resident memory of the process, where the operating system tells.
    pub peak_memory_bytes: Option<u64>,
    /// Steps taken.
    pub steps: u64,
    /// Trainable and all parameters.
    pub parameters: ParameterCounts,
    /// Noise of each trainable parameter at the end, relative to the mean over all coordinates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noise_by_parameter: Vec<(String, f64)>,
    /// Mean relevance of each trainable parameter's coordinates after normalisation to [0, 1],
    /// where the method begins with a relevance map.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relevance_by_parameter: Vec<(String, f64)>,
    /// Units, steps and calibrated noise.
    pub resolved: Resolved,
    /// Hash of the ledger's last line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_hash: Option<String>,
    /// The run file with every default.
    pub plan: RunFile,
}

fn first_format() -> u32 {
    1
}

impl Summary {
    /// Reads the summary of a finished run.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
        Self::parse(path, &text)
    }

    /// Reads a summary from its text; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct FormatOnly {
            format: Option<u32>,
        }
        let damaged =
            |e: serde_json::Error| Error::folder(path, format!("is not what a run writes: {e}"));
        let FormatOnly { format } = serde_json::from_str(text).map_err(damaged)?;
        check_format(path, format)?;
        serde_json::from_str(text).map_err(damaged)
    }

    /// The version that is written.
    pub const FORMAT: u32 = FORMAT_VERSION;
}

/// The ε of a paper's own accounting, which is not proved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// ε by the paper's accounting.
    pub epsilon: f64,
    /// δ.
    pub delta: f64,
}

/// Metrics on the validation file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ValidationMetrics {
    /// On the texts as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Metrics>,
    /// On texts whose embeddings are perturbed as those of the training examples were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_with_noise: Option<Metrics>,
}

/// About perturbed embeddings, in local DP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerturbationFacts {
    /// Columns of a released embedding.
    pub width: usize,
    /// Share of the variance of public rows that encoder and decoder lose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconstruction_error: Option<f64>,
    /// Largest over smallest standard deviation of the columns' noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loudest_over_quietest: Option<f64>,
    /// ε of one release by the sufficient condition of the matrix-variate Gaussian mechanism, in
    /// paper mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sufficient_epsilon: Option<f64>,
}

/// Speed since the run was started or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Examples through a forward and a backward pass, per second of training.
    pub examples_per_second: f64,
    /// Seconds of training.
    pub seconds: f64,
}

/// Numbers of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterCounts {
    /// Trainable parameters.
    pub trainable: usize,
    /// All parameters.
    pub total: usize,
}
