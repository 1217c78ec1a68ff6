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
    /// ε at a given δ, of past or planned releases
    #[command(allow_negative_numbers = true)]
    Epsilon(epsilon::Epsilon),
    /// δ at a given ε, of past or planned releases
    #[command(allow_negative_numbers = true)]
    Delta(epsilon::Delta),
    /// The smallest noise multiplier that meets a target (ε, δ)
    #[command(allow_negative_numbers = true)]
    Noise(noise::Noise),
    /// A noise multiplier for each epoch, calibrated to (ε, δ)
    #[command(allow_negative_numbers = true)]
    Schedule(schedule::Schedule),
    /// MVG's budgets over the positions of a sequence, and their noise multipliers
    #[command(allow_negative_numbers = true)]
    Tokens(tokens::Tokens),
    /// The whole privacy curve δ(ε)
    #[command(allow_negative_numbers = true)]
    Curve(curve::Curve),
    /// Trade-off curve: the true-positive rate that the best attacker can reach
    #[command(name = "tradeoff", allow_negative_numbers = true)]
    TradeOff(curve::TradeOff),
    /// ε of the best of a random number of private runs (private selection)
    #[command(allow_negative_numbers = true)]
    Selection(selection::Selection),
    /// Check a ledger and state what it guarantees
    #[command(allow_negative_numbers = true)]
    Ledger(ledger::Ledger),
    /// Write a certificate of ε that others can check without this program
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
