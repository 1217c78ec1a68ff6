//! From a plan to a trained model.
//!
//! ```text
//! plan ─▶ sampler ─▶ micro-batches ─ learner: book-keeping, clipping ─▶ sum ─ noise ─▶ optimiser ─▶ weights
//!   └──▶ ledger (written first) ─▶ guarantee
//! ```

mod card;
mod checkpoint;
mod error;
mod folder;
mod forward;
mod identity;
mod learner;
mod news;
pub mod optimiser;
mod plan;
mod prepare;
mod rate;
mod record;
mod relevance;
mod run;
mod spending;
mod steps;
mod summary;

pub use error::{Error, Result};
pub use folder::RunFolder;
pub use learner::{Learner, Protection, Step};
pub use news::News;
pub use plan::{
    AdaclipPlan, AdaptPlan, Adaptation, After, AnadpPlan, AttentionName, ComputePlan, DataPlan,
    EncoderName, ForwardPlan, Learn, Lengths, Method, ModeName, ModelPlan, MvgPlan, NoiseIs,
    NoiseSchedule, Plan, PrivacyPlan, PublicFile, RapFtPlan, RelevanceSource, Resolved, RowsName,
    TaskName, TrainingPlan,
};
pub use prepare::{mould, read_data};
pub use rate::RateSchedule;
pub use record::Record;
pub use run::{Start, train};
pub use summary::{Claim, Counts, Measured, Summary, Throughput, peak_memory};
