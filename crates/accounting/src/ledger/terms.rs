//! The first line of a ledger.

use crate::{Adjacency, Error, Mode, Part, Result, Threat, Unit};
use serde::{Deserialize, Serialize};

/// The terms under which everything in a ledger is released.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// The privacy unit.
    pub unit: Unit,
    /// Which data sets are neighbours.
    pub adjacency: Adjacency,
    /// What the adversary sees.
    pub threat: Threat,
    /// Whether ε is proved for the algorithm that runs.
    pub mode: Mode,
    /// What the guarantee assumes besides.
    pub assumptions: Vec<String>,
    /// The costliest entry of each kind that may follow: costlier ones are refused, and a torn line
    /// counts as one of each.
    pub announced: Vec<Part>,
}

impl Terms {
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
