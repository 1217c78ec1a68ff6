//! `undertone audit`: attack what was released.

mod exposure;
mod inversion;
pub mod membership;
mod one_run;
pub mod run_folder;

use crate::failure::Outcome;
use clap::Subcommand;

/// Attack what was released, to see what a guarantee is worth
#[derive(Subcommand)]
pub enum Audit {
    /// How likely a language model holds planted secrets
    Exposure(exposure::Exposure),
    /// Guess the tokens of records from perturbed embeddings, by layer and budget
    Inversion(inversion::Inversion),
    /// Tell examples that a run trained on from others
    Membership(membership::Membership),
    /// Train once with canaries, and bound ε from below
    OneRun(one_run::OneRun),
}

impl Audit {
    pub fn run(self) -> Outcome {
        match self {
            Self::Exposure(exposure) => exposure.run(),
            Self::Inversion(inversion) => inversion.run(),
            Self::Membership(membership) => membership.run(),
            Self::OneRun(one_run) => one_run.run(),
        }
    }
}
