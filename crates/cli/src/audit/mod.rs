//! `undertone audit`: attacks on trained models and perturbed embeddings.

mod all;
mod attribute;
pub mod exposure;
mod extraction;
mod inversion;
pub mod membership;
mod one_run;
mod private_things;
mod reconstruction;
mod released;
pub mod run_folder;
mod sizes;
mod trials;

use crate::failure::Outcome;
use crate::output::{Output, is_hushed};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// Attack a trained model or perturbed embeddings, to test a guarantee
#[derive(Subcommand)]
pub enum Audit {
    /// Every attack that applies to a finished run, in one table
    All(all::All),
    /// Attribute inference from perturbed embeddings (local DP), by layer and budget
    Attribute(attribute::Attribute),
    /// Exposure of secrets in a language model: planted ones (canaries), or those of its training
    /// texts
    Exposure(exposure::Exposure),
    /// Extraction of PII: let a language model generate texts, and look for names, e-mail addresses
    /// and phone numbers of its training texts
    Extraction(extraction::Extraction),
    /// Embedding inversion: tokens from perturbed embeddings (local DP), by layer and budget
    Inversion(inversion::Inversion),
    /// Membership inference: which examples did a run train on?
    Membership(membership::Membership),
    /// Train once with canaries, and bound ε from below
    OneRun(one_run::OneRun),
    /// Reconstruction of PII: mask it in training texts, and let the language model fill it in
    Reconstruction(reconstruction::Reconstruction),
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
        }
    }
}

/// A bar on a terminal, nothing in a pipe.
fn progress(count: usize, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() || is_hushed() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {what}, {{eta}} left"));
    ProgressBar::new(count as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
