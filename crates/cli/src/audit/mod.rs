//! `undertone audit`: attack what was released.

mod inversion;

use crate::failure::Outcome;
use clap::Subcommand;

/// Attack what was released, to see what a guarantee is worth
#[derive(Subcommand)]
pub enum Audit {
    /// Guess the tokens of records from perturbed embeddings, by layer and budget
    Inversion(inversion::Inversion),
}

impl Audit {
    pub fn run(self) -> Outcome {
        match self {
            Self::Inversion(inversion) => inversion.run(),
        }
    }
}
