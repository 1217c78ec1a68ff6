//! What a finished run says about itself.

use super::forward::Facts;
use super::plan::{Plan, Resolved};
use crate::evaluate::Metrics;
use serde::Serialize;
use undertone_accounting::Guarantee;

/// summary.json.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Whether the guarantee holds: not for a method without privacy, and not for a run that
    /// anybody can repeat.
    pub private: bool,
    /// Why not, if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_private_because: Option<String>,
    /// What the ledger proves.
    pub guarantee: Option<Guarantee>,
    /// What the paper would print, in paper mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Claim>,
    /// How good the model is.
    pub metrics: Measured,
    /// What the files were used for, besides training.
    pub selection: String,
    /// About the perturbation of records, where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<Facts>,
    /// How fast it went.
    pub throughput: Throughput,
    /// The most memory that the process had.
    pub peak_memory_bytes: Option<u64>,
    /// Steps taken.
    pub steps: u64,
    /// Numbers that were trained, and all of the model's.
    pub parameters: Counts,
    /// How much noise each trained parameter had at last, relative to the mean over all
    /// coordinates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub noise_by_parameter: Vec<(String, f64)>,
    /// The mean relevance of each trained parameter's coordinates after the parameter's were
    /// brought to [0, 1], where the method begins with a map.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub relevance_by_parameter: Vec<(String, f64)>,
    /// Units, steps and noise.
    pub resolved: Resolved,
    /// The hash of the ledger's last line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_hash: Option<String>,
    /// The run file with every default.
    pub plan: Plan,
}

/// The ε of a method's own accounting, which does not hold.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Claim {
    /// As if every step were worth its nominal noise multiplier.
    pub epsilon: f64,
    /// δ.
    pub delta: f64,
}

/// By file.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// On the validation file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Metrics>,
    /// On the validation file, when its texts are perturbed as the records were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_with_noise: Option<Metrics>,
}

/// How fast it went, since the run was started or resumed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Throughput {
    /// Examples that went through a forward and a backward pass, per second of training.
    pub examples_per_second: f64,
    /// Seconds of training.
    pub seconds: f64,
}

/// Parameters by number.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counts {
    /// Trained.
    pub trainable: usize,
    /// All.
    pub total: usize,
}

/// The most memory that the process ever had, where the system tells (Linux).
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
