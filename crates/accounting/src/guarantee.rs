//! The privacy guarantee of a finished or running computation.

use crate::{Adjacency, Bounds};
use serde::{Deserialize, Serialize};

/// The privacy unit: the entity whose presence or contribution the guarantee protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// One training example.
    #[default]
    Example,
    /// All examples of one user.
    User,
}

/// Threat model: what the adversary sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threat {
    /// Central DP: a trusted curator trains; the adversary sees every released update and the final
    /// weights.
    #[default]
    Central,
    /// Local DP: the provider is the adversary; it sees every perturbed embedding and knows its
    /// owner.
    Local,
}

/// Whether ε is proved for the algorithm that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// ε is proved for what ran.
    #[default]
    Proved,
    /// A published algorithm, run as published for comparison; `assumptions` lists what is not
    /// covered.
    Paper,
    /// A reproducible run with noise from a seed. Anyone who knows the seed can subtract the noise,
    /// so the run has no guarantee.
    Seeded,
}

/// The privacy guarantee of everything recorded in a ledger. Only
/// [`crate::ledger::Ledger::guarantee`] creates one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Guarantee {
    /// The privacy unit.
    pub unit: Unit,
    /// Neighboring relation between data sets.
    pub adjacency: Adjacency,
    /// What the adversary sees.
    pub threat: Threat,
    /// Bounds on ε at `delta`.
    pub epsilon: Bounds,
    /// The δ of (ε, δ)-differential privacy.
    pub delta: f64,
    /// Whether ε is proved for the algorithm that ran.
    pub mode: Mode,
    /// Further assumptions of the guarantee.
    pub assumptions: Vec<String>,
}

impl std::fmt::Display for Guarantee {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let unit = match self.unit {
            Unit::Example => "one example",
            Unit::User => "all examples of one user",
        };
        let change = match self.adjacency {
            Adjacency::AddRemove => "adding or removing",
            Adjacency::ReplaceOne => "replacing",
        };
        let sees = match self.threat {
            Threat::Central => "sees every update and the final weights",
            Threat::Local => "sees every perturbed embedding and knows whose it is",
        };
        // A paper's own algorithm may release something that the ledger does not cover, and seeded
        // noise hides nothing. Their ε is never stated as a guarantee.
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

/// ε to four decimals, rounded up, so that rounding never understates it.
pub fn rounded_up(epsilon: f64) -> String {
    format!("{:.4}", (epsilon * 1e4).ceil() / 1e4)
}
