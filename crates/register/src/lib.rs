//! A register of privacy budgets: one per data set, for an organization that trains on it for years.
//!
//! ```text
//! add (cap ε, δ) ─▶ reserve (planned events) ─▶ the run ─▶ settle (events of its ledger)
//!                        │ over the cap: refused    └─ crash: the reservation stays
//! ```
//!
//! # What is promised
//!
//! Let S be the events of all settled runs of a data set and R those of all open reservations.
//!
//! - **Never over the cap.** A reservation is written only if the accountant certifies
//!   ε(S ∪ R ∪ planned) ≤ cap at the cap's δ. Reading the register, deciding and writing are one
//!   transaction, so concurrent runs cannot each take the last of the budget. A settlement replaces
//!   the planned events by those that the run's ledger holds, which are no more than the planned
//!   ones, unless a ledger counts lines torn by a crash: these were spent, and are recorded even
//!   if the total then exceeds the cap.
//! - **Nothing is lost.** An entry is on disk before the call returns. A process that is killed
//!   leaves either no entry or a whole one; a torn line was never acknowledged and is removed. A
//!   reservation counts until it is settled or released, so a crash wastes budget and hides nothing.
//! - **Edits are found.** Each line has the hash of the one before, and a small file beside the
//!   register holds the number of lines and the last hash. Whoever rewrites the whole chain and this
//!   file is found only by a hash that was noted elsewhere: the plan of every run has that of its
//!   reservation, and [`Register::verify`] takes any such hash.
//! - **Composition is the accountant's**, over events rather than sums of ε, and assumes what
//!   `undertone_accounting::ledger` states for several ledgers: noise, sampling rate and steps of
//!   each run were fixed before another run's results were seen.
//!
//! # Why a file of lines
//!
//! The register needs one transaction at a time, a few thousand entries and a hash chain, and it is
//! audited by people. A file with one JSON object per line, an exclusive lock and an fsync does
//! that, can be read with any tool, and adds no library to the trainer. What does it is behind
//! [`Store`], so that a database can take its place. Locks of files hold on one machine and on
//! network file systems that support them; a file that is synchronized or copied between machines
//! has no lock, and two copies are two budgets.

#![warn(missing_docs)]

mod account;
mod chain;
mod compose;
mod course;
mod date;
mod entry;
mod error;
mod file;
mod owner;
mod register;
mod runs;
mod state;
mod store;
mod verify;

pub use account::{Account, Booking, Fit, Status};
pub use chain::Line;
pub use course::Point;
pub use date::{date, day_and_time, end_of_day};
pub use entry::{Cap, Cost, DataSet, Entry, Name, Reservation, Settlement};
pub use error::{Error, Result};
pub use register::{Register, new_id};
pub use state::State;
pub use store::Store;
pub use verify::Verified;
