//! Privacy audits: attacks on fine-tuned models and on perturbed embeddings.
//!
//! Every attack reports its results with confidence intervals. [`one_run`] turns membership guesses
//! into a proved lower bound on ε: if it exceeds the upper bound in the ledger, the implementation
//! violates its guarantee.

pub mod attribute;
pub mod canaries;
pub mod exposure;
pub mod extraction;
pub mod inversion;
pub mod membership;
pub mod one_run;
mod probe;
pub mod reconstruction;
pub mod repetition;
pub mod secret;
pub mod spans;
pub mod statistics;
pub mod texts;
pub mod tradeoff;
pub mod update;
