//! Hostile tasks against the owner's code, from rows to frames, without a network between.
//!
//! The provider writes the task: norm bound, noise, weights and tokenizer. Whatever they are, two
//! folders with as many rows must look alike to it, but for what the ledger accounts for.

mod random;
mod search;
mod world;
