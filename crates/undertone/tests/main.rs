//! The integration tests, in a single binary: linking takes longer than most of them.

#[path = "../../model/tests/common/mod.rs"]
mod common;
#[path = "../../model/tests/reference/mod.rs"]
mod reference;
mod steps;

mod allocations;
mod audit;
mod frozen_weights;
mod private_gradients;
mod private_training;
mod ranks;
mod relevance;
mod replay;
mod sanitizer;
mod scores;
mod secrets;
mod spans;
mod split;
