//! The run file as types, and the files that settings are read from and written to.
//!
//! All settings of a run are in one TOML file. This crate parses it into a [`RunFile`], with errors
//! that name the key and the line, and defines the plain types in which the lower-level crates
//! (tensors, data, models) receive their settings. It performs no computation.
//!
//! ```
//! use undertone_settings::{MethodName, RunFile, Tuning};
//!
//! let text = r#"
//!     [model]
//!     path = "models/bert"
//!     tuning = { lora = { rank = 8 } }
//!     [data]
//!     task = "classification"
//!     train = "letters.csv"
//!     text = "letter"
//!     [privacy]
//!     method = "dp-sgd"
//!     epsilon = 8.0
//!     delta = 1e-5
//!     clip = 0.1
//!     [training]
//!     epochs = 3
//!     batch = 512
//!     learning_rate = 1e-3
//! "#;
//! let file = RunFile::parse(text, &["privacy.epsilon=3".to_owned()])?;
//! assert_eq!(file.privacy.method, MethodName::DpSgd);
//! assert_eq!(file.privacy.epsilon, Some(3.0));
//! assert!(matches!(file.model.tuning, Tuning::Lora(lora) if lora.rank == 8));
//! # Ok::<(), undertone_settings::Error>(())
//! ```

#![warn(missing_docs)]

mod atomic;
mod error;
mod file;
mod place;
mod read;
mod resolved;

pub use atomic::{create_secret, part_of, write_atomically, write_json, write_secret_atomically};
pub use error::{Error, Result};
pub use file::{
    AccountedBatch, ActivationRule, AdaclipSection, AdaptSection, AdapterSettings, AdaptiveClip,
    AnadpSection, AttentionHeads, AttentionSource, AutoKey, Bounding, Choices, Clip,
    ComputeSection, DataSection, EncoderActivation, EncoderKind, EvaluationSection, Format,
    Ia3Settings, ImportanceForm, ImportanceSource, InitialA, InitialBiases, InitialRelevance,
    KeptEpoch, LearnerKind, LearningRateSchedule, Lengths, LocalSection, LogFormat, LongTexts,
    LoraSettings, MAX_TOKENS, MaskRanking, MethodName, MicroBatch, ModeName, ModelSection, MvgHead,
    MvgSection, NcclUse, NoiseCorrelation, NoiseIs, NoiseLayer, NoiseSchedule, OnBadRow,
    OptimizerKind, PrecisionName, PrivacySection, PromptSettings, PublicFile, Quantize,
    RapFtSection, ReleaseKind, ReleasedRows, RelevanceRule, RelevanceSource, RunFile,
    SamplingLevel, StopEarly, SynthesisSection, SyntheticFormat, TaskName, TrainingSection, Tuning,
    WeightAverage, WrittenRun, edit_distance, key_named,
};
pub use place::{last_component, real_path};
pub use read::{MOST_OF_SETTINGS, open_regular, read_bytes, read_settings};
pub use resolved::{Adaptation, Registered, Releases, Resolved, SampledExamples};

/// Version of the run-folder layout that this release reads and writes.
pub const FORMAT_VERSION: u32 = 4;

/// Rejects files written by another layout version.
pub fn check_format(path: &std::path::Path, format: Option<u32>) -> Result<()> {
    match format {
        None | Some(FORMAT_VERSION) => Ok(()),
        Some(version) => {
            let other = if version > FORMAT_VERSION { "a newer" } else { "the older" };
            Err(Error::folder(
                path,
                format!(
                    "has format {version}, but this version of undertone reads format \
                     {FORMAT_VERSION}; use {other} undertone"
                ),
            ))
        }
    }
}
