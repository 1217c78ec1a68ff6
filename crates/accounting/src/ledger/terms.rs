//! What a ledger's first line says about all that follow.

use crate::{Adjacency, Error, Mode, Part, Result, Threat, Unit};
use serde::{Deserialize, Serialize};

/// The terms under which everything in a ledger is released.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Whose presence is hidden.
    pub unit: Unit,
    /// Which data sets count as neighbours.
    pub adjacency: Adjacency,
    /// What the adversary sees.
    pub threat: Threat,
    /// Whether the algorithm is the one the ε is a theorem about.
    pub mode: Mode,
    /// What must hold besides.
    pub assumptions: Vec<String>,
    /// The costliest entry of each kind that may follow: no other is accepted, and a torn line
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
