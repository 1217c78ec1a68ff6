//! What a table shows of each run.

use serde::Deserialize;
use undertone_run::{Metrics, Summary};

/// A figure of a finished run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Accuracy of the classifier on the validation file, in percent.
    Accuracy,
    /// Accuracy of the best epoch on the validation file, in percent.
    BestAccuracy,
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
        matches!(self, Self::Accuracy | Self::BestAccuracy | Self::AccuracyWithNoise | Self::F1)
    }

    /// Digits behind the point that say something.
    pub fn decimals(self) -> usize {
        match self {
            Self::Loss => 4,
            Self::Memory => 3,
            _ => 2,
        }
    }

    /// The metric in a run's summary.
    pub fn of(self, summary: &Summary) -> Option<f64> {
        let classification = |metrics: &Option<Metrics>| match metrics {
            Some(Metrics::Classification(found)) => Some(found.clone()),
            _ => None,
        };
        let validation = &summary.metrics.validation;
        let found = match self {
            Self::Accuracy => 100.0 * classification(validation)?.accuracy,
            Self::BestAccuracy => {
                let best = summary.metrics.best_validation.as_ref();
                100.0 * classification(&best.or(validation.as_ref()).cloned())?.accuracy
            }
            Self::AccuracyWithNoise => {
                100.0 * classification(&summary.metrics.validation_with_noise)?.accuracy
            }
            Self::F1 => 100.0 * classification(validation)?.f1,
            Self::Loss => validation.as_ref()?.loss(),
            Self::Perplexity => match validation {
                Some(Metrics::Language(found)) => found.perplexity,
                _ => return None,
            },
            // From the speed: the seconds of a run that was resumed are those since then. Of
            // authors it is not known how many examples they have.
            Self::MinutesPerEpoch if summary.plan.data.author.is_none() => {
                summary.resolved.units as f64 / summary.throughput.examples_per_second / 60.0
            }
            Self::MinutesPerEpoch => return None,
            Self::Memory => summary.peak_memory_bytes? as f64 / 1e9,
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
            Self::BestAccuracy => "accuracy of the best epoch, %",
            Self::AccuracyWithNoise => "accuracy with noise, %",
            Self::F1 => "F1, %",
            Self::Loss => "loss",
            Self::Perplexity => "perplexity",
            Self::MinutesPerEpoch => "minutes per epoch",
            Self::Memory => "memory, GB",
        })
    }
}
