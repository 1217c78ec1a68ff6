//! Runs the owner's code on hostile tasks, from rows to frames, without a network.
//!
//! The provider writes the task: norm bound, noise, weights and tokenizer. Whatever they are, two
//! folders with the same number of rows must look alike to it, except for what the ledger accounts
//! for.

mod random;
mod search;
mod world;
