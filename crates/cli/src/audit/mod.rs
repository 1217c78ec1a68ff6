//! `undertone audit`: attacks on trained models and perturbed embeddings.

mod all;
mod attribute;
pub mod exposure;
mod extraction;
mod inversion;
pub mod membership;
mod one_run;
pub mod private_things;
mod reconstruction;
mod released;
mod replay;
pub mod run_folder;
mod sizes;
mod trials;

use crate::failure::Outcome;
use crate::output::{Output, is_hushed};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// Attack a trained model or perturbed embeddings to test the privacy guarantee
#[derive(Subcommand)]
pub enum Audit {
    All(all::All),
    Attribute(attribute::Attribute),
    Exposure(exposure::Exposure),
    Extraction(extraction::Extraction),
    Inversion(inversion::Inversion),
    Membership(membership::Membership),
    OneRun(one_run::OneRun),
    Reconstruction(reconstruction::Reconstruction),
    Replay(replay::Replay),
}

impl Audit {
    pub fn run(self, output: Output) -> Outcome {
        match self {
            Self::All(all) => all.run(output),
            Self::Attribute(attribute) => attribute.run(output),
            Self::Exposure(exposure) => exposure.run(output),
            Self::Extraction(extraction) => extraction.run(output),
            Self::Inversion(inversion) => inversion.run(output),
            Self::Membership(membership) => membership.run(output),
            Self::OneRun(one_run) => one_run.run(output),
            Self::Reconstruction(reconstruction) => reconstruction.run(output),
            Self::Replay(replay) => replay.run(output),
        }
    }
}

/// A progress bar on a terminal, nothing in a pipe.
fn progress(count: usize, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() || is_hushed() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {what}, {{eta}} left"));
    ProgressBar::new(count as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
