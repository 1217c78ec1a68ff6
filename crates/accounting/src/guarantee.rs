//! What may be said about a finished or running computation.

use crate::{Adjacency, Bounds};
use serde::{Deserialize, Serialize};

/// Whose presence is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// One training example.
    #[default]
    Example,
    /// All examples of one person.
    User,
    /// One token of a sequence.
    Token,
    /// The label of one example.
    Label,
}

/// What the adversary sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threat {
    /// A trusted curator trains; the adversary sees every released update and the final weights.
    #[default]
    Central,
    /// The provider is the adversary: it sees every perturbed record as it arrives, and knows whose
    /// it is.
    Local,
}

/// Whether the algorithm is the one the ε is a theorem about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The printed ε is proved for what ran.
    #[default]
    Proved,
    /// A published algorithm as published, for comparison; `assumptions` says what is not covered.
    Paper,
    /// The noise was drawn from a seed, to be repeatable: whoever knows the seed can take the noise
    /// off, so nothing is guaranteed.
    Seeded,
}

/// The privacy guarantee of everything a ledger holds. Made by [`crate::ledger::Ledger::guarantee`]
/// only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Guarantee {
    /// Whose presence is hidden.
    pub unit: Unit,
    /// Which data sets count as neighbours.
    pub adjacency: Adjacency,
    /// What the adversary sees.
    pub threat: Threat,
    /// ε at `delta`.
    pub epsilon: Bounds,
    /// δ.
    pub delta: f64,
    /// Whether the algorithm is the one the ε is a theorem about.
    pub mode: Mode,
    /// What must hold besides.
    pub assumptions: Vec<String>,
}

impl std::fmt::Display for Guarantee {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let unit = match self.unit {
            Unit::Example => "one example",
            Unit::User => "all examples of one user",
            Unit::Token => "one token",
            Unit::Label => "one label",
        };
        let change = match self.adjacency {
            Adjacency::AddRemove => "adding or removing",
            Adjacency::ReplaceOne => "replacing",
        };
        let sees = match self.threat {
            Threat::Central => "sees every update and the final weights",
            Threat::Local => "sees every perturbed record and knows whose it is",
        };
        // A paper's own algorithm may release what no ledger covers, and seeded noise hides
        // nothing: their ε is never stated as a guarantee.
        let no_guarantee = match self.mode {
            Mode::Proved => None,
            Mode::Paper => Some("run as published, with ε ="),
            Mode::Seeded => {
                Some("the noise was drawn from a known seed; a run without one would have ε =")
            }
        };
        if let Some(why) = no_guarantee {
            return write!(
                f,
                "no guarantee: {why} {} at δ = {:e} for what the ledger holds alone",
                rounded_up(self.epsilon.upper),
                self.delta
            );
        }
        write!(
            f,
            "({}, {:e})-differential privacy for {change} {unit}, against an adversary who {sees}",
            rounded_up(self.epsilon.upper),
            self.delta
        )
    }
}

/// ε to four decimals, rounded up: a guarantee is never rounded in its own favour.
pub fn rounded_up(epsilon: f64) -> String {
    format!("{:.4}", (epsilon * 1e4).ceil() / 1e4)
}
