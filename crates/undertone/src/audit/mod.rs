//! Attacks on what was trained or released: a guarantee that nobody tests is a hope.
//!
//! Every attack gives figures with intervals. [`one_run`] turns guesses into a lower bound on ε
//! that is itself a theorem: where it is above the upper bound that the ledger prints, something is
//! broken.

pub mod attribute;
pub mod canaries;
pub mod exposure;
pub mod extraction;
pub mod inversion;
pub mod membership;
pub mod one_run;
mod probe;
pub mod reconstruction;
pub mod spans;
pub mod statistics;
pub mod texts;
pub mod tradeoff;
pub mod update;
