//! The integration tests, in one program: linking takes longer than most of them.

mod bench;
#[path = "../../../tests/snapshot/mod.rs"]
mod snapshot;

mod adaptive_clipping;
mod attacks;
mod audit;
mod augment;
mod average;
mod before_training;
mod book;
mod budget;
mod chat;
mod correlated_noise;
mod cuts;
mod early_stop;
mod first_run;
mod forgery;
mod help;
mod hostile;
mod hub;
mod ledgers;
mod local;
mod masked;
mod members;
mod memorising;
mod model_folders;
mod overwriting;
mod provider;
mod public_importance;
mod publish;
mod quantised;
mod ranks;
mod ranks_audit;
mod rap_ft;
mod report;
mod selection;
mod shareable;
mod sources;
mod stop;
mod sweep;
mod tensorboard;
mod torn_rows;
mod train;
mod use_model;
mod watch;
