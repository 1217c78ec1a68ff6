//! What a table shows of each run.

use serde::Deserialize;
use serde_json::Value;

/// A figure of a finished run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Accuracy of the classifier on the validation file, in percent.
    Accuracy,
    /// Accuracy in percent when the validation embeddings are perturbed too (local DP).
    AccuracyWithNoise,
    /// F1 of the classifier on the validation file, in percent.
    F1,
    /// Mean cross-entropy on the validation file.
    Loss,
    /// Perplexity of the language model on the validation file.
    Perplexity,
    /// Training time, from the throughput.
    MinutesPerEpoch,
    /// Peak memory of the process, in GB.
    Memory,
}

impl Metric {
    /// Whether more of it is better.
    pub fn higher_is_better(self) -> bool {
        matches!(self, Self::Accuracy | Self::AccuracyWithNoise | Self::F1)
    }

    /// Digits behind the point that say something.
    pub fn decimals(self) -> usize {
        match self {
            Self::Loss => 4,
            Self::Memory => 3,
            _ => 2,
        }
    }

    /// The figure in a run's summary.
    pub fn of(self, summary: &Value) -> Option<f64> {
        let measured = &summary["metrics"]["validation"];
        let found = match self {
            Self::Accuracy => 100.0 * measured["accuracy"].as_f64()?,
            Self::AccuracyWithNoise => {
                100.0 * summary["metrics"]["validation_with_noise"]["accuracy"].as_f64()?
            }
            Self::F1 => 100.0 * measured["f1"].as_f64()?,
            Self::Loss => measured["loss"].as_f64()?,
            Self::Perplexity => measured["perplexity"].as_f64()?,
            // From the speed: the seconds of a run that was resumed are those since then. Of
            // authors it is not known how many examples they have.
            Self::MinutesPerEpoch if summary["plan"]["data"]["author"].is_null() => {
                let speed = summary["throughput"]["examples_per_second"].as_f64()?;
                summary["resolved"]["units"].as_f64()? / speed / 60.0
            }
            Self::MinutesPerEpoch => return None,
            Self::Memory => summary["peak_memory_bytes"].as_f64()? / 1e9,
        };
        found.is_finite().then_some(found)
    }

    /// Whether it can only be measured on a validation file.
    pub fn needs_validation(self) -> bool {
        !matches!(self, Self::MinutesPerEpoch | Self::Memory)
    }
}

impl std::fmt::Display for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Accuracy => "accuracy, %",
            Self::AccuracyWithNoise => "accuracy with noise, %",
            Self::F1 => "F1, %",
            Self::Loss => "loss",
            Self::Perplexity => "perplexity",
            Self::MinutesPerEpoch => "minutes per epoch",
            Self::Memory => "memory, GB",
        })
    }
}
