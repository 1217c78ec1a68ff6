//! `summary.json`: guarantee and settings of a finished run; `private/summary.json`: private
//! figures.

use crate::Resolved;
use crate::RunFile;
use crate::metrics::{Metrics, ReleasedMetric};
use crate::{Error, Result};
use crate::{FORMAT_VERSION, check_format};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;
use undertone_accounting::Guarantee;

/// The summary of a finished run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// Version of the folder's layout.
    pub format: u32,
    /// Whether the guarantee holds; false for non-private, seeded and published (paper mode) runs.
    pub private: bool,
    /// Why the run is not private, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_private_because: Option<String>,
    /// The ledger's guarantee.
    pub guarantee: Option<Guarantee>,
    /// The (ε, δ) that the paper would claim, in paper mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Claim>,
    /// Metrics of the trained model; private unless the validation file is public.
    #[serde(default, skip_serializing_if = "ValidationMetrics::is_empty")]
    pub metrics: ValidationMetrics,
    /// Metrics on private validation data that were released with noise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released_metrics: Vec<ReleasedMetric>,
    /// What the validation file was used for.
    pub selection: String,
    /// Properties of the perturbed embeddings, in local DP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<PerturbationFacts>,
    /// Throughput of training; private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    /// Maximum number of processes (ranks) used by the run; it may have been resumed with fewer.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub ranks: usize,
    /// Peak resident memory of the process, on Linux; private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Peak memory of the run's matrices on the GPU; private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_gpu_memory_bytes: Option<u64>,
    /// Maximum number of examples computed at once, in a non-private run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_micro_batch: Option<u64>,
    /// Number of steps taken.
    pub steps: u64,
    /// Epochs of a run with early stopping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<EpochsTaken>,
    /// What a run that was finished before its last planned step would have guaranteed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// Number of rows of the training file that were skipped because they cannot be read; private
    /// if the number of units is declared.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_rows: u64,
    /// Parameter counts.
    pub parameters: ParameterCounts,
    /// Noise std of each trainable parameter at the end, relative to the mean over all coordinates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noise_by_parameter: Vec<(String, f64)>,
    /// Mean relevance of each trainable parameter, normalized to [0, 1], if the method has a
    /// relevance map.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relevance_by_parameter: Vec<(String, f64)>,
    /// Cost of the relevance map, if the method has one; private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relevance_cost: Option<RelevanceCost>,
    /// Units, steps and calibrated noise.
    pub resolved: Resolved,
    /// Hash of the ledger's last line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_hash: Option<String>,
    /// The run file with all defaults.
    pub plan: RunFile,
}

/// Fields that `private/summary.json` may contain.
const PRIVATE_FIELDS: [&str; 9] = [
    "metrics",
    "throughput",
    "peak_memory_bytes",
    "peak_gpu_memory_bytes",
    "largest_micro_batch",
    "noise_by_parameter",
    "relevance_by_parameter",
    "relevance_cost",
    "skipped_rows",
];

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn one() -> usize {
    1
}

fn is_one(number: &usize) -> bool {
    *number == 1
}

impl Summary {
    /// Parses a summary from the text of `summary.json` and, if present, of its private part, each
    /// with its path for error messages.
    pub(crate) fn parse(
        (path, text): (&Path, &str),
        private: Option<(&Path, &str)>,
    ) -> Result<Self> {
        #[derive(Deserialize)]
        struct FormatOnly {
            format: Option<u32>,
        }
        let damaged = |path: &Path, e: serde_json::Error| {
            Error::folder(path, format!("is not a summary of a run: {e}"))
        };
        let here = |e| damaged(path, e);
        let FormatOnly { format } = serde_json::from_str(text).map_err(here)?;
        check_format(path, format)?;
        let mut fields: Map<String, Value> = serde_json::from_str(text).map_err(here)?;
        if let Some((path, text)) = private {
            let more: Map<String, Value> =
                serde_json::from_str(text).map_err(|e| damaged(path, e))?;
            let known = |(name, _): &(String, Value)| PRIVATE_FIELDS.contains(&name.as_str());
            for (name, value) in more.into_iter().filter(known) {
                fields.entry(name).or_insert(value);
            }
        }
        serde_json::from_value(Value::Object(fields)).map_err(here)
    }

    /// The fields missing from [`Summary::shared`]; `path` is used in error messages.
    pub(crate) fn private_fields(&self, path: &Path) -> Result<Map<String, Value>> {
        let fields = |summary: &Self| match serde_json::to_value(summary) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(_) => Err(Error::folder(path, "cannot be written as a JSON object")),
            Err(e) => Err(Error::folder(path, format!("cannot be written as JSON: {e}"))),
        };
        let (shared, mut private) = (fields(&self.shared())?, fields(self)?);
        private.retain(|name, _| !shared.contains_key(name));
        Ok(private)
    }

    /// The summary without anything that depends on private data and carries no noise. In a private
    /// run, metrics on a public file and the noise and relevance by parameter are post-processing
    /// of its releases; in any other run they are not.
    pub fn shared(&self) -> Self {
        let metrics_are_shared = self.private && self.plan.data.validation_is_public;
        let if_private = |list: &[(String, f64)]| match self.private {
            true => list.to_vec(),
            false => Vec::new(),
        };
        Self {
            metrics: match metrics_are_shared {
                true => self.metrics.clone(),
                false => ValidationMetrics::default(),
            },
            throughput: None,
            peak_memory_bytes: None,
            peak_gpu_memory_bytes: None,
            largest_micro_batch: None,
            noise_by_parameter: if_private(&self.noise_by_parameter),
            relevance_by_parameter: if_private(&self.relevance_by_parameter),
            relevance_cost: None,
            // With a declared number of units, no output reveals the number of rows.
            skipped_rows: match self.plan.privacy.units {
                Some(_) => 0,
                None => self.skipped_rows,
            },
            ..self.clone()
        }
    }

    /// What a run on several ranks assumes beyond what its ledger states. The ledger's first line
    /// was written when the run began, possibly on a single rank.
    pub fn trusted_network(&self) -> Option<String> {
        (self.ranks > 1).then(|| {
            format!(
                "the network between the {} processes (ranks) of the run is as trusted as their \
                 machines: what they exchange is not protected by noise",
                self.ranks
            )
        })
    }

    /// The format version that is written.
    pub const FORMAT: u32 = FORMAT_VERSION;
}

/// The ε of a paper's own accounting, which is not proved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// ε by the paper's accounting.
    pub epsilon: f64,
    /// The δ at which it is claimed.
    pub delta: f64,
}

/// Epochs of a run with early stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochsTaken {
    /// Number of epochs after which the run stopped; the total if it did not stop early.
    pub epochs: u64,
    /// The epoch whose weights are kept, starting at 1.
    pub kept: u64,
}

/// A run that was stopped by hand and finished before its last planned step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stopped {
    /// Number of steps in the plan.
    pub planned_steps: u64,
    /// The guarantee of the whole plan, which also holds if the run was stopped because of what it
    /// had released. `None` without a ledger, and if the steps that were not taken cost nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee_of_plan: Option<Guarantee>,
}

impl Stopped {
    /// What the ε of the steps taken assumes, and what holds otherwise.
    pub fn caveat(&self) -> Option<String> {
        self.guarantee_of_plan.as_ref().map(stopping_caveat)
    }
}

/// What the ε of a run that was stopped early assumes, given the guarantee of its whole plan.
pub fn stopping_caveat(of_plan: &Guarantee) -> String {
    format!(
        "This holds if the run was not stopped because of anything that it released or showed. If \
         it was stopped because of its model, or of metrics on public data, the ε of the whole \
         plan counts: {of_plan}. Stopping because of its training loss, or of metrics on private \
         data, is covered by neither."
    )
}

/// Metrics on the validation file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ValidationMetrics {
    /// On embeddings without noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Metrics>,
    /// Metrics of the best epoch, if it is not the last. Choosing an epoch by a private validation
    /// file is a release that no ledger records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_validation: Option<Metrics>,
    /// On perturbed embeddings, with the noise of training (local DP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_with_noise: Option<Metrics>,
}

impl ValidationMetrics {
    fn is_empty(&self) -> bool {
        let Self { validation, best_validation, validation_with_noise } = self;
        [validation, best_validation, validation_with_noise].iter().all(|metrics| metrics.is_none())
    }
}

/// Properties of perturbed embeddings, in local DP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerturbationFacts {
    /// Number of columns of a released embedding.
    pub width: usize,
    /// Fraction of the variance of public rows that is lost by encoding and decoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconstruction_error: Option<f64>,
    /// Ratio of the largest to the smallest noise standard deviation over the columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loudest_over_quietest: Option<f64>,
    /// ε of one release by the sufficient condition of the matrix-variate Gaussian mechanism, in
    /// paper mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sufficient_epsilon: Option<f64>,
    /// The same with the condition as the paper prints it, in which the square of the sensitivity
    /// stands for the sensitivity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed_epsilon: Option<f64>,
}

/// Throughput since the run was started or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Examples that completed a forward and a backward pass per second of training.
    pub examples_per_second: f64,
    /// Training time in seconds.
    pub seconds: f64,
}

/// Cost of a relevance map.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelevanceCost {
    /// Seconds per example.
    pub seconds_per_example: f64,
    /// Peak resident memory while computing the map one example at a time, beyond what was resident
    /// before, on Linux.
    pub peak_memory_bytes: Option<u64>,
}

/// Parameter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterCounts {
    /// Trainable parameters.
    pub trainable: usize,
    /// All parameters.
    pub total: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn summary(private: bool, validation_is_public: bool) -> Summary {
        let text = json!({
            "format": FORMAT_VERSION, "private": private, "guarantee": null, "selection": "", "steps": 3,
            "metrics": {
                "validation": { "examples": 1, "tokens": 2, "loss": 1.0, "perplexity": 2.7 }
            },
            "throughput": { "examples_per_second": 5.0, "seconds": 6.0 },
            "peak_memory_bytes": 7, "peak_gpu_memory_bytes": 8, "largest_micro_batch": 9,
            "parameters": { "trainable": 1, "total": 2 },
            "noise_by_parameter": [["a", 1.0]], "relevance_by_parameter": [["a", 1.0]],
            "relevance_cost": { "seconds_per_example": 1.0, "peak_memory_bytes": 2 },
            "resolved": { "units": 5, "steps_per_epoch": 3, "noise_multipliers": [] },
            "plan": {
                "model": { "path": "model", "tuning": "full" },
                "data": {
                    "task": "language-modeling", "train": "a.txt", "text": "text",
                    "validation": "b.txt", "validation_is_public": validation_is_public
                },
                "privacy": { "method": "dp-sgd" },
                "training": { "epochs": 1, "batch": 2, "learning_rate": 0.1 }
            }
        });
        Summary::parse((Path::new("summary.json"), &text.to_string()), None).unwrap()
    }

    /// The two parts together make up the whole, and the private part is complete.
    #[test]
    fn private_fields_are_kept_apart_and_read_again() {
        for (private, is_public, kept) in [(true, false, 6), (true, true, 5), (false, true, 8)] {
            let whole = summary(private, is_public);
            let path = Path::new("summary.json");
            let fields = whole.private_fields(path).unwrap();
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            assert_eq!(names.len(), kept, "{names:?}");
            assert!(names.iter().all(|name| PRIVATE_FIELDS.contains(name)), "{names:?}");
            let text = |value: &Summary| serde_json::to_string(value).unwrap();
            let shared = text(&whole.shared());
            for name in &names {
                assert!(!shared.contains(&format!("{name:?}:")), "{name}: {shared}");
            }
            let apart = Value::Object(fields).to_string();
            let again = Summary::parse((path, &shared), Some((path, &apart))).unwrap();
            assert_eq!(text(&again), text(&whole));
            // Published without its private part, it is still a valid summary.
            assert!(Summary::parse((path, &shared), None).unwrap().throughput.is_none());
        }
    }

    /// The private part cannot override shared fields.
    #[test]
    fn shared_fields_are_those_of_the_shared_file() {
        let whole = summary(true, false);
        let (path, shared) = (Path::new("a"), serde_json::to_string(&whole.shared()).unwrap());
        let forged = json!({ "steps": 1, "claimed": { "epsilon": 1.0, "delta": 0.1 } }).to_string();
        let parsed = Summary::parse((path, &shared), Some((path, &forged))).unwrap();
        assert!(parsed.steps == 3 && parsed.claimed.is_none());
    }
}
