//! The integration tests, in one program: linking takes longer than most of them.

mod bench;
#[path = "../../../tests/snapshot/mod.rs"]
mod snapshot;

mod adaptive_clipping;
mod attacks;
mod audit;
mod book;
mod budget;
mod forgery;
mod help;
mod hostile;
mod local;
mod masked;
mod memorising;
mod overwriting;
mod public_importance;
mod report;
mod selection;
mod sources;
mod sweep;
mod torn_rows;
mod train;
mod use_model;
mod watch;
