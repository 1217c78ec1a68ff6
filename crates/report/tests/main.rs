//! The integration tests, in a single binary: linking takes longer than most of them.

#[path = "../../../tests/snapshot/mod.rs"]
mod snapshot;

mod report;
