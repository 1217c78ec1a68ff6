//! The integration tests, in a single binary: linking takes longer than most of them.

mod away;
mod bench;
mod commands;
mod examples;
mod help;
mod hostile;
#[path = "../../../tests/postgres/mod.rs"]
mod postgres;
mod serve;
#[path = "../../../tests/snapshot/mod.rs"]
mod snapshot;
mod tls;
mod world;
