//! The metrics that a table can show.

use crate::audit::{self, Attack};
use crate::runner::Finished;
use serde::Deserialize;
use undertone_run::Metrics;

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
    /// Peak memory of the GPU during training, in GB.
    GpuMemory,
    /// Peak device memory during training per example of a micro-batch, in GB.
    MemoryPerExample,
    /// Seconds per example for computing the relevance map.
    RelevanceSeconds,
    /// Peak memory of the relevance map, in GB.
    RelevanceMemory,
    /// Share of generated PII that is in the training texts, in percent.
    ExtractionPrecision,
    /// Share of the training texts' PII that is generated, in percent.
    ExtractionRecall,
    /// Top-1 accuracy of reconstruction, in percent, on texts unknown to the pretrained model.
    ReconstructionAccuracy,
    /// AUC of membership inference by the loss, in percent.
    MembershipAuc,
    /// Mean exposure of the phone numbers in the training texts, in bits.
    PhoneExposure,
    /// Mean reciprocal rank of the tokens of the names in the training texts.
    NameReciprocalRank,
}

impl Metric {
    /// Whether larger is better.
    pub fn higher_is_better(self) -> bool {
        matches!(self, Self::Accuracy | Self::BestAccuracy | Self::AccuracyWithNoise | Self::F1)
    }

    /// Number of meaningful decimal places.
    pub fn decimals(self) -> usize {
        match self {
            Self::Loss | Self::NameReciprocalRank => 4,
            Self::Memory | Self::GpuMemory | Self::MemoryPerExample => 3,
            Self::RelevanceSeconds | Self::RelevanceMemory => 3,
            _ => 2,
        }
    }

    /// The attack that measures it.
    pub fn attack(self) -> Option<Attack> {
        match self {
            Self::ExtractionPrecision | Self::ExtractionRecall => Some(Attack::Extraction),
            Self::ReconstructionAccuracy => Some(Attack::Reconstruction),
            Self::MembershipAuc => Some(Attack::Membership),
            Self::PhoneExposure | Self::NameReciprocalRank => Some(Attack::Exposure),
            _ => None,
        }
    }

    /// The metric of a run.
    pub fn of(self, run: &Finished) -> Option<f64> {
        let summary = &run.summary;
        let attacked = || run.audit.as_ref();
        let classification = |metrics: &Option<Metrics>| match metrics {
            Some(Metrics::Classification(metrics)) => Some(metrics.clone()),
            _ => None,
        };
        let validation = &summary.metrics.validation;
        let value = match self {
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
                Some(Metrics::Language(metrics)) => metrics.perplexity,
                _ => return None,
            },
            // Computed from the throughput, because the seconds of a resumed run count from its
            // resumption. With authors, the number of examples is unknown.
            Self::MinutesPerEpoch if summary.plan.data.author.is_none() => {
                summary.resolved.units as f64 / summary.throughput?.examples_per_second / 60.0
            }
            Self::MinutesPerEpoch => return None,
            Self::Memory => summary.peak_memory_bytes? as f64 / 1e9,
            Self::GpuMemory => summary.peak_gpu_memory_bytes? as f64 / 1e9,
            Self::MemoryPerExample => {
                let bytes = summary.peak_gpu_memory_bytes.or(summary.peak_memory_bytes)?;
                bytes as f64 / 1e9 / summary.largest_micro_batch? as f64
            }
            Self::RelevanceSeconds => summary.relevance_cost?.seconds_per_example,
            Self::RelevanceMemory => summary.relevance_cost?.peak_memory_bytes? as f64 / 1e9,
            Self::ExtractionPrecision => 100.0 * audit::precision(attacked()?)?,
            Self::ExtractionRecall => 100.0 * audit::recall(attacked()?)?,
            Self::ReconstructionAccuracy => 100.0 * audit::reconstruction(attacked()?)?,
            Self::MembershipAuc => 100.0 * audit::area(attacked()?)?,
            Self::PhoneExposure => audit::exposure_of_phones(attacked()?)?,
            Self::NameReciprocalRank => audit::rank_of_names(attacked()?)?,
        };
        value.is_finite().then_some(value)
    }

    /// Whether it needs a validation file.
    pub fn needs_validation(self) -> bool {
        let of_training = matches!(
            self,
            Self::MinutesPerEpoch
                | Self::Memory
                | Self::GpuMemory
                | Self::MemoryPerExample
                | Self::RelevanceSeconds
                | Self::RelevanceMemory
        );
        !of_training && self.attack().is_none()
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
            Self::GpuMemory => "GPU memory, GB",
            Self::MemoryPerExample => "memory per example, GB",
            Self::RelevanceSeconds => "seconds of the map per example",
            Self::RelevanceMemory => "memory of the map, GB",
            Self::ExtractionPrecision => "extraction precision, %",
            Self::ExtractionRecall => "extraction recall, %",
            Self::ReconstructionAccuracy => "reconstruction accuracy, %",
            Self::MembershipAuc => "membership AUC, %",
            Self::PhoneExposure => "exposure of phone numbers, bits",
            Self::NameReciprocalRank => "reciprocal rank of names",
        })
    }
}
