//! The integration tests, in one program: linking takes longer than most of them.

mod bench;
#[path = "../../../tests/snapshot/mod.rs"]
mod snapshot;

mod attacks;
mod audit;
mod book;
mod budget;
mod first_run;
mod forgery;
mod help;
mod hostile;
mod local;
mod masked;
mod memorising;
mod overwriting;
mod report;
mod sources;
mod sweep;
mod torn_rows;
mod train;
mod use_model;
mod watch;
