//! The training loop: from a plan to a trained model in a run folder.
//!
//! ```text
//! plan ─▶ procedure: sample ─▶ micro-batches ─▶ clipped sum ─▶ release ─▶ optimizer ─▶ weights
//!             └──▶ ledger (recorded first) ─▶ guarantee
//! ```
//!
//! The loop calls a [`Procedure`](crate::method::Procedure) and does not know which method it runs.

pub(crate) mod card;
mod checkpoint;
mod early_stop;
mod footprint;
mod identity;
mod journal;
mod load;
mod planned;
mod prepare;
mod rehearse;
mod run;
mod steps;
mod tally;
mod together;

pub use crate::error::{Error, Result};
pub use crate::memory::peak_memory;
pub use crate::method::{SpentEpsilon, TrainingEvent};
pub use crate::plan::{Method, Plan};
pub use card::{Library, Saved, card, card_of_merged};
pub use planned::{PlannedCost, planned_cost, planned_releases};
pub(crate) use prepare::reader;
pub use prepare::{examples_of_rows, read_data, read_held_out, typical_tokens};
pub use rehearse::{Rehearsal, StepTime, Timing, rehearse, rehearse_model};
pub use run::{Start, finish_stopped, train, train_until};
pub use tally::Tally;
pub use undertone_run::{Record, Summary};
