//! The owner's side: releases are recorded in the owner's own ledger, stored, and then sent.
//!
//! ```text
//! secret.key          the source of ids and noise
//! owner.db            pinned tasks, releases, receipts
//! lock                one process at a time
//! tasks/HASH/         task.json, pre/, contribution.jsonl and query.jsonl (ledgers)
//! ```
//!
//! # Promises
//!
//! - *A row is released once under a task, for each purpose.* Its id is a keyed hash of the raw
//!   bytes of its text and of its number among the rows with the same text. Its noise is a function
//!   of (secret, task, purpose, text, number, epoch). Releases are stored, and a resend sends the
//!   stored bytes.
//! - *Every row is released.* The number of releases and the length of a frame are functions of the
//!   number of rows. No text can make a call fail (`release.rs`), and all releases are stored
//!   before the first one is sent.
//! - *Privacy loss is recorded first.* The ledger of (task, purpose) has one entry for each event
//!   of one row. No row is released twice under it, so those entries bound the privacy loss of any
//!   row, regardless of the number of rows and calls.
//! - *The owner bounds ε.* Before an entry is written, the composition of all ledgers in the folder
//!   with the new entries must stay within the owner's bound, whatever the task states.
//! - *The secret and the ledgers belong together.* A ledger identifies the secret it was created
//!   with. With another secret the same row would get fresh noise, so that is refused.

mod book;
mod budget;
mod client;
mod contribute;
mod fetch;
mod home;
mod purpose;
mod query;
mod release;
mod rows;
mod send;
#[cfg(test)]
mod tests;
mod verify;

pub use budget::Bound;
pub use client::{Endpoint, Identity};
pub use contribute::{Contribute, Contributed, contribute};
pub use fetch::Provider;
pub use home::default_home;
pub use query::{Answer, Answered, Query, query};
