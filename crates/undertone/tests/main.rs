//! The integration tests, in one program: linking takes longer than most of them.

mod common;
mod data_parquet;
#[path = "../src/data/fixture.rs"]
mod fixture;
mod reference;

mod allocations;
mod audit;
mod data_csv;
mod data_dataset;
mod data_files;
mod data_formats;
mod data_mutation;
mod data_sampler;
mod frozen_weights;
mod generation;
mod kernels;
mod model_configs;
mod model_parity;
mod mutations;
mod precision;
mod private_gradients;
mod private_training;
mod ranks;
mod relevance;
mod replay;
mod sanitiser;
mod scores;
mod secrets;
mod spans;
mod split;
mod tokenizers;
mod tuning;
mod tuning_kinds;
