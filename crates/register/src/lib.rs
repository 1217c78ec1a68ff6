//! A register of privacy budgets, one per data set, for organizations that train on it for years.
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
//!   the planned events by those in the run's ledger. There are no more of them than planned,
//!   unless the ledger counts lines torn by a crash: these were spent and are recorded even if the
//!   total then exceeds the cap.
//! - **Nothing is lost.** An entry is on disk before the call returns. A process that is killed
//!   leaves either no entry or a complete one; a torn line was never acknowledged and is removed. A
//!   reservation counts until it is settled or released, so a crash may waste budget but hides
//!   nothing.
//! - **Edits are detected.** Each line carries the hash of the previous line, and a small file
//!   beside the register holds the number of lines and the last hash. Rewriting both the whole
//!   chain and this file is detected only by a hash that was noted elsewhere: every run's plan
//!   contains the hash of its reservation, and [`Register::verify`] accepts any such hash.
//! - **Composition is the accountant's**, over events rather than sums of ε, and assumes what
//!   `undertone_accounting::ledger` states for several ledgers: noise, sampling rate and steps of
//!   each run were fixed before another run's results were seen.
//!
//! # Why a file of lines
//!
//! The register needs one transaction at a time, a few thousand entries and a hash chain, and
//! people audit it. A file with one JSON object per line, an exclusive lock and an fsync provides
//! that, can be read with any tool, and adds no library to the trainer. The storage is behind the
//! trait [`Store`]: a program that calls [`provide_database`] also has registers in a database, for
//! machines that share no file system. File locks work on one machine and on network
//! file systems that support them; a file that is synchronized or copied between machines is not
//! locked, and two copies are two budgets.

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
mod place;
mod register;
mod runs;
mod state;
mod store;
mod verify;

pub use account::{Account, Booking, Fit, Status};
pub use chain::{Line, last_hash};
pub use course::Point;
pub use date::{date, day_and_time, end_of_day};
pub use entry::{Cap, Cost, DataSet, Entry, Name, Reservation, Settlement};
pub use error::{Error, Result};
pub use place::{OpenDatabase, absolute_place, provide_database};
pub use register::{Register, new_id};
pub use state::State;
pub use store::Store;
pub use verify::Verified;
