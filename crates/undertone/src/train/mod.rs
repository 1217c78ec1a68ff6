//! The training loop: from a plan to a trained model in a run folder.
//!
//! ```text
//! plan ─▶ procedure: sample ─▶ micro-batches ─▶ clipped sum ─▶ release ─▶ optimiser ─▶ weights
//!             └──▶ ledger (recorded first) ─▶ guarantee
//! ```
//!
//! The loop calls a [`Procedure`](crate::method::Procedure) and does not know which method it runs.

mod average;
mod card;
mod checkpoint;
mod early_stop;
mod event;
mod gather;
mod identity;
mod journal;
mod learner;
mod memory;
pub mod optimiser;
mod planned;
mod prepare;
mod rehearse;
mod run;
mod steps;
mod tally;
mod together;

pub use crate::error::{Error, Result};
pub use crate::plan::{Method, Plan};
pub use card::{Saved, card};
pub use event::{SpentEpsilon, TrainingEvent};
pub use learner::{Learner, Protection, Step};
pub(crate) use memory::PartOfRun;
pub use memory::peak_memory;
pub use planned::planned_releases;
pub(crate) use prepare::Prepared;
pub use prepare::{canary_template, examples_of_rows, read_data, read_held_out};
pub use rehearse::{Rehearsal, StepTime, Timing, rehearse};
pub use run::{Start, train, train_until};
pub use tally::Tally;
pub use undertone_run::{Record, Summary};
