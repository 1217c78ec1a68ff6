//! The first line of a ledger.

use crate::{Adjacency, Error, Mode, Part, Result, Threat, Unit};
use serde::{Deserialize, Serialize};

/// The terms under which everything in a ledger is released.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// A random number in hexadecimal, unique to this ledger, so one ledger cannot stand in for
    /// another. Ledgers written before 0.2.0 have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The training run whose releases are recorded; none for other uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunBinding>,
    /// The privacy unit.
    pub unit: Unit,
    /// Neighboring relation between data sets.
    pub adjacency: Adjacency,
    /// What the adversary sees.
    pub threat: Threat,
    /// Whether ε is proved for the algorithm that runs.
    pub mode: Mode,
    /// Further assumptions of the guarantee.
    pub assumptions: Vec<String>,
    /// The costliest entry of each kind that may follow: costlier ones are refused, and a torn line
    /// counts as one of each.
    pub announced: Vec<Part>,
}

/// Binds a ledger to one training run, so that a ledger beside another plan, or with fewer entries
/// than the run has released, is detected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunBinding {
    /// SHA-256 of the run's plan, in hexadecimal.
    pub plan: String,
    /// Number of privacy units in the training data.
    pub units: u64,
    /// Sampling rate of a step, or `None` without sampling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_rate: Option<f64>,
    /// Maximum number of examples of a user, if examples are sampled one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples_per_user: Option<u64>,
    /// Number of steps of the whole run.
    pub steps: u64,
    /// Noise multiplier of each epoch.
    pub noise_multipliers: Vec<f64>,
    /// δ of the run's guarantee.
    pub delta: f64,
    /// Number of entries after the last step.
    pub entries: u64,
    /// The device and precision of the run, which determine rounding.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
}

/// Begins the assumption of a ledger without a run that names the column of its users.
pub const USERS_BY_COLUMN: &str = "a user is all rows with the same value in column ";

impl Terms {
    /// The column by which users are known, if an assumption names it.
    pub fn author(&self) -> Option<&str> {
        self.assumptions.iter().find_map(|assumption| assumption.strip_prefix(USERS_BY_COLUMN))
    }

    pub(super) fn validate(&self) -> Result<()> {
        for part in &self.announced {
            part.event.validate()?;
        }
        if self.announced.is_empty() {
            return Err(Error::invalid("number of announced events", 0, "at least 1"));
        }
        Ok(())
    }
}
