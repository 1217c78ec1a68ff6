//! The run folder: every file that a run produces, as types that are written and read in one place.
//!
//! ```text
//! run.toml ──▶ RunFile ──▶ plan.toml                     undertone-settings
//!              Resolved (steps, noise multipliers) ┘
//! training ──▶ Record ──▶ metrics.jsonl                  metrics.rs
//!          ──▶ Summary ──▶ summary.json                  summary.rs
//! attacks  ──▶ Audit ──▶ audit.json                      audit.rs
//! ```
//!
//! [`RunPaths`] names the files, and [`RunFolder`] holds the lock that ensures a single writer. All
//! files are written with [`write_atomically`]. [`FORMAT_VERSION`] identifies the layout of a
//! folder.

#![warn(missing_docs)]

pub mod audit;
mod events;
mod figures;
mod finished;
mod folder;
mod host;
mod identity;
mod lease;
mod metrics;
mod numbers;
mod output;
mod printable;
mod statistics;
mod summary;
mod synthesis;
mod tensorboard;
mod together;
mod weights;

pub use audit::Audit;
pub use events::{EVENTS_VERSION, EventLog};
pub use figures::{Audience, Evaluation, Figure};
pub use finished::FinishedRun;
pub use folder::{RunFolder, RunPaths, is_locked, private_labels, run_of};
pub use host::host_name;
pub use identity::Identity;
pub use metrics::{
    ClassificationMetrics, LanguageMetrics, Metrics, MetricsWriter, Record, ReleasedMetric,
    read_metrics,
};
pub use output::{check_new_folder, check_output};
pub use printable::{escape_markdown, printable, printable_json, printable_line};
pub use statistics::StatisticsPaths;
pub use summary::{
    Claim, EpochsTaken, ParameterCounts, PerturbationFacts, RelevanceCost, Stopped, Summary,
    Throughput, ValidationMetrics, stopping_caveat,
};
pub use synthesis::{ClassWeight, SampledFacts, Statistics, SyntheticPaths};
pub use tensorboard::{TensorboardWriter, scalars};
pub use together::{Cost, cost_together};
pub use undertone_settings::*;
pub use weights::weights_hash;
