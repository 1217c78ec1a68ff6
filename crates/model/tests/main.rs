//! The integration tests, in a single binary: linking takes longer than most of them.

mod common;
mod reference;

mod generation;
mod kernels;
mod model_configs;
mod model_parity;
mod mutations;
mod precision;
mod tokenizers;
mod tuning;
mod tuning_kinds;
