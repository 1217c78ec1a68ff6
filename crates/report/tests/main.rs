//! The integration tests, in one program: linking takes longer than most of them.

#[path = "../../../tests/snapshot/mod.rs"]
mod snapshot;

mod report;
