//! `undertone audit`: attack what was released.

mod all;
mod attribute;
mod exposure;
mod extraction;
mod inversion;
pub mod membership;
mod one_run;
mod private_things;
mod reconstruction;
mod released;
pub mod run_folder;

use crate::failure::Outcome;
use crate::output::Output;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// Attack what was released, to see what a guarantee is worth
#[derive(Subcommand)]
pub enum Audit {
    /// Every attack that applies to a finished run, in one table
    All(all::All),
    /// Guess an attribute of records from perturbed embeddings, by layer and budget
    Attribute(attribute::Attribute),
    /// How likely a language model holds planted secrets
    Exposure(exposure::Exposure),
    /// Let a language model write, and look for names, e-mail addresses and phone numbers of its
    /// training texts
    Extraction(extraction::Extraction),
    /// Guess the tokens of records from perturbed embeddings, by layer and budget
    Inversion(inversion::Inversion),
    /// Tell examples that a run trained on from others
    Membership(membership::Membership),
    /// Train once with canaries, and bound ε from below
    OneRun(one_run::OneRun),
    /// Mask private things in training texts, and let the language model fill them in
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
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {what}, {{eta}} left"));
    ProgressBar::new(count as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
