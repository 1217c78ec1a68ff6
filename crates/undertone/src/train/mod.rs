//! From a plan to a trained model.
//!
//! ```text
//! plan ─▶ sampler ─▶ micro-batches ─ learner: book-keeping, clipping ─▶ sum ─ noise ─▶ optimiser ─▶ weights
//!   └──▶ ledger (written first) ─▶ guarantee
//! ```

mod checkpoint;
mod error;
mod folder;
mod learner;
pub mod optimiser;
mod plan;
mod rate;
mod record;
mod run;
mod summary;

pub use error::{Error, Result};
pub use folder::RunFolder;
pub use learner::{Learner, Step};
pub use plan::{
    ComputePlan, DataPlan, Method, ModelPlan, NoiseSchedule, Plan, PrivacyPlan, Resolved, TaskName,
    TrainingPlan,
};
pub use rate::RateSchedule;
pub use record::Record;
pub use run::{News, Start, train};
pub use summary::{Counts, Measured, Summary, Throughput, peak_memory};
