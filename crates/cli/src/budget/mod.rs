//! `undertone budget`: the accountant as a calculator.

mod certify;
mod curve;
mod epsilon;
mod ledger;
mod noise;
mod releases;
mod schedule;
mod selection;
mod tokens;

use crate::failure::Outcome;
use crate::output::Output;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Budget {
    /// Compute ε at a given δ
    #[command(allow_negative_numbers = true)]
    Epsilon(epsilon::Epsilon),
    /// Compute δ at a given ε
    #[command(allow_negative_numbers = true)]
    Delta(epsilon::Delta),
    /// Compute the smallest noise multiplier that meets a target (ε, δ)
    #[command(allow_negative_numbers = true)]
    Noise(noise::Noise),
    /// Compute a noise multiplier for each epoch that together meet a target (ε, δ)
    #[command(allow_negative_numbers = true)]
    Schedule(schedule::Schedule),
    /// Compute the budgets of MVG for each token of a sequence, and their noise multipliers
    #[command(allow_negative_numbers = true)]
    Tokens(tokens::Tokens),
    /// Compute the privacy curve δ(ε)
    #[command(allow_negative_numbers = true)]
    Curve(curve::Curve),
    /// Compute the trade-off curve: the highest true-positive rate of any attacker
    #[command(name = "tradeoff", allow_negative_numbers = true)]
    TradeOff(curve::TradeOff),
    /// Compute ε of the best of a random number of private runs (private selection)
    #[command(allow_negative_numbers = true)]
    Selection(selection::Selection),
    #[command(allow_negative_numbers = true)]
    Ledger(ledger::Ledger),
    #[command(allow_negative_numbers = true)]
    Certify(certify::Certify),
}

impl Budget {
    pub fn run(self, output: Output) -> Outcome {
        match self {
            Budget::Epsilon(verb) => verb.run(output),
            Budget::Delta(verb) => verb.run(output),
            Budget::Noise(verb) => verb.run(output),
            Budget::Schedule(verb) => verb.run(output),
            Budget::Tokens(verb) => verb.run(output),
            Budget::Curve(verb) => verb.run(output),
            Budget::TradeOff(verb) => verb.run(output),
            Budget::Selection(verb) => verb.run(output),
            Budget::Ledger(verb) => verb.run(output),
            Budget::Certify(verb) => verb.run(output),
        }
    }
}
