//! The owner's side: releases are paid for in the owner's own ledger, stored, and then sent.
//!
//! ```text
//! secret.key          what ids and noise are functions of
//! owner.db            pinned tasks, releases, receipts
//! lock                one process at a time
//! tasks/HASH/         task.json, pre/, contribution.jsonl and query.jsonl (ledgers)
//! ```
//!
//! # What is promised
//!
//! - *A row is released once under a task, for each purpose.* Its id is a keyed hash of the raw
//!   bytes of its text and of its number among the rows with the same text, and its noise a
//!   function of (secret, task, purpose, text, number, epoch). What was released is stored, and a
//!   resend sends the stored bytes.
//! - *Every row is released.* How many releases there are, and how long a frame is, are functions
//!   of the number of rows. Nothing that a text can be makes a call fail (`release.rs`), and all
//!   releases are stored before the first one is sent.
//! - *It is paid for first.* The ledger of (task, purpose) has one entry for each event of one
//!   row. Since no row is released twice under it, those entries bound what any row has lost,
//!   however many rows were sent, and in however many calls.
//! - *ε is bounded by the owner.* Before an entry is written, the composition of all ledgers in the
//!   folder with the new entries must stay within the owner's bound, whatever the task states.
//! - *The secret and the ledgers belong together.* A ledger names the secret that it was begun
//!   with; with another one the same row would get fresh noise, so that is refused.

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
pub(crate) use verify::client_config;
