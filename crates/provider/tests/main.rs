//! The integration tests, in one program: linking takes longer than most of them.

mod away;
mod hostile;
#[path = "../../../tests/postgres/mod.rs"]
mod postgres;
mod serve;
mod tls;
mod world;
