//! The integration tests, in a single binary: linking takes longer than most of them.

#[path = "../src/fixture.rs"]
mod fixture;
mod parquet_files;

mod csv;
mod dataset;
mod files;
mod formats;
mod mutation;
mod sampler;
mod written;
