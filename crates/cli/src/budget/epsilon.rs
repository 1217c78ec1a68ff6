//! `budget epsilon` and `budget delta`.

use super::releases::Releases;
use crate::arguments::AccountantArgument;
use crate::failure::Outcome;
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use undertone_accounting::Answer;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone budget epsilon --noise-multiplier 1.1 --sampling-rate \
     0.00426667 --steps 14063 --delta 1e-5\n  undertone budget epsilon --phase \
     0.6,0.000475,2104 --phase 0.5,0.000475,2104 --delta 1e-5\n  undertone budget epsilon \
     --noise-multiplier 0.39 --releases 3 --sensitivity 2 --delta 1e-5"
)]
pub struct Epsilon {
    #[command(flatten)]
    releases: Releases,
    /// δ at which to compute ε
    #[arg(long)]
    delta: f64,
    #[command(flatten)]
    by: AccountantArgument,
}

impl Epsilon {
    pub fn run(self, output: Output) -> Outcome {
        let composition = self.releases.composition()?;
        let answer = undertone_accounting::epsilon(&composition, self.delta, self.by.accountant)?;
        print(&answer, output, |a| json!(a.delta.upper), |a| json!(a.epsilon));
        Ok(())
    }
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone budget delta --noise-multiplier 1.1 --sampling-rate \
     0.00426667 --steps 14063 --epsilon 2"
)]
pub struct Delta {
    #[command(flatten)]
    releases: Releases,
    /// ε at which to compute δ
    #[arg(long)]
    epsilon: f64,
    #[command(flatten)]
    by: AccountantArgument,
}

impl Delta {
    pub fn run(self, output: Output) -> Outcome {
        let composition = self.releases.composition()?;
        let answer = undertone_accounting::delta(&composition, self.epsilon, self.by.accountant)?;
        if output.json {
            print(&answer, output, |a| json!(a.delta), |a| json!(a.epsilon.upper));
            return Ok(());
        }
        let d = answer.delta;
        output::rows(&[
            ("ε", format!("{}", self.epsilon)),
            (
                "δ",
                format!(
                    "{} … {} (estimate {:.4e})",
                    output::delta_down(d.lower),
                    output::delta_up(d.upper),
                    d.estimate
                ),
            ),
            ("accountant", answer.accountant.to_string()),
            ("adjacency", answer.adjacency.to_string()),
        ]);
        Ok(())
    }
}

/// Prints one answer, for programs or for people.
pub fn print(
    answer: &Answer,
    output: Output,
    delta: impl Fn(&Answer) -> serde_json::Value,
    epsilon: impl Fn(&Answer) -> serde_json::Value,
) {
    if output.json {
        output::json(&json!({
            "epsilon": epsilon(answer),
            "delta": delta(answer),
            "accountant": answer.accountant,
            "certified": answer.certified,
            "adjacency": answer.adjacency,
        }));
    } else {
        output::rows(&output::explain(answer));
        output::line("");
        output::line(output::sentence(answer));
    }
}
