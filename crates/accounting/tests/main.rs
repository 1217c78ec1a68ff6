//! The integration tests, in a single binary: linking takes longer than most of them.

mod calibration;
mod certificate;
mod closed_forms;
mod example_sampling;
mod inversion;
mod ledger;
mod properties;
mod random_settings;
mod reference;
mod sampling;
mod selection;
