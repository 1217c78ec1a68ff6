//! The run folder: every file that a run leaves behind, as types that are written and read in one
//! place.
//!
//! ```text
//! run.toml ──▶ RunFile ──▶ plan.toml                     file/
//!              Resolved (steps, noise multipliers) ┘      resolved.rs
//! training ──▶ Record ──▶ metrics.jsonl                  metrics.rs
//!          ──▶ Summary ──▶ summary.json                  summary.rs
//! attacks  ──▶ Audit ──▶ audit.json                      audit.rs
//! ```
//!
//! [`RunPaths`] has the names of the files, [`RunFolder`] the lock that one process at a time
//! holds; [`write_atomically`] writes all of them. [`FORMAT_VERSION`] says
//! which layout a folder has; folders of earlier versions are still read.

#![warn(missing_docs)]

mod atomic;
pub mod audit;
mod error;
mod file;
mod finished;
mod folder;
mod identity;
mod lease;
mod metrics;
mod numbers;
mod output;
mod printable;
mod read;
mod resolved;
mod summary;
mod tensorboard;
mod together;
mod weights;

pub use atomic::{write_atomically, write_json};
pub use audit::Audit;
pub use error::{Error, Result};
pub use file::{
    AccountedBatch, AdaclipSection, AdaptSection, AdapterSettings, AdaptiveClip, AnadpSection,
    AttentionSource, Augment, AutoKey, Bounding, Choices, Clip, ComputeSection, DataSection,
    EncoderActivation, EncoderKind, Format, Ia3Settings, ImportanceForm, ImportanceSource,
    InitialRelevance, KeptEpoch, LearnerKind, LearningRateSchedule, Lengths, LocalSection,
    LongTexts, LoraSettings, MAX_TOKENS, MethodName, MicroBatch, ModeName, ModelSection, MvgHead,
    MvgSection, NcclUse, NoiseCorrelation, NoiseIs, NoiseLayer, NoiseSchedule, OnBadRow,
    OptimiserKind, Precision, PrivacySection, PublicFile, Quantise, RapFtSection, ReleaseKind,
    ReleasedRows, RelevanceRule, RelevanceSource, RunFile, StopEarly, TaskName, TrainingSection,
    Tuning, WeightAverage, WrittenRun,
};
pub use finished::FinishedRun;
pub use folder::{RunFolder, RunPaths, is_locked, private_labels};
pub use identity::Identity;
pub use metrics::{
    ClassificationMetrics, LanguageMetrics, Metrics, MetricsWriter, Record, read_metrics,
};
pub use output::{check_new_folder, check_output};
pub use printable::{escape_markdown, printable, printable_json, printable_line};
pub use read::{MOST_OF_SETTINGS, open_regular, read_bytes, read_settings};
pub use resolved::{Adaptation, Releases, Resolved};
pub use summary::{
    Claim, EpochsTaken, ParameterCounts, PerturbationFacts, RelevanceCost, Summary, Throughput,
    ValidationMetrics,
};
pub use tensorboard::{TensorboardWriter, scalars};
pub use together::{Cost, cost_together};
pub use weights::weights_hash;

/// The layout of run folders that this version writes. Version 1 had no number, ledgers of before
/// version 3 do not name their run, and summaries of before version 4 hold private figures; all are
/// still read.
pub const FORMAT_VERSION: u32 = 4;

/// Refuses files that a later version wrote.
pub(crate) fn check_format(path: &std::path::Path, found: Option<u32>) -> Result<()> {
    match found {
        Some(version) if version > FORMAT_VERSION => Err(Error::folder(
            path,
            format!(
                "has format {version}, but this version of undertone reads formats up to \
                 {FORMAT_VERSION}; use a newer undertone"
            ),
        )),
        _ => Ok(()),
    }
}
