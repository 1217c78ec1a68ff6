//! What a line of the register records.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use undertone_accounting::{Adjacency, Composition, Threat, Unit};

/// An entry of the register.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub enum Entry {
    /// The first line.
    Begin {
        /// Layout of the lines.
        format: u32,
        /// A random number in hexadecimal that no other register has.
        id: String,
    },
    /// A data set gets a budget.
    Add(DataSet),
    /// A run reserves its planned cost before it reads anything.
    Reserve(Reservation),
    /// A run has ended: its actual cost replaces the planned one.
    Settle(Settlement),
    /// A reservation is released, because its run released nothing.
    Release {
        /// The reservation's id.
        reservation: String,
        /// Why nothing was released.
        reason: String,
    },
    /// The cap of a data set changes.
    Cap {
        /// The data set.
        dataset: Name,
        /// The new cap.
        cap: Cap,
        /// Who approved it.
        approver: String,
    },
    /// No further run on a data set is allowed.
    Close {
        /// The data set.
        dataset: Name,
        /// The reason.
        reason: String,
    },
}

/// Layout of the lines that are written.
pub const FORMAT: u32 = 1;

/// The key of a data set: a name and a version declared by its owner. It is not a hash of the rows,
/// so that adding a row does not open a new budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Name {
    /// The name given by the owner.
    pub name: String,
    /// The version.
    pub version: String,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

impl Name {
    /// Rejects names that could be mistaken for each other or for `name@version`.
    pub fn check(&self) -> Result<()> {
        let plain = |text: &str| {
            (1..=64).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        match plain(&self.name) && plain(&self.version) {
            true => Ok(()),
            false => Err(Error::refused(
                "name and version of a data set must be 1 to 64 letters, digits, dots, dashes or \
                 underscores",
            )),
        }
    }
}

/// The maximum cost of all runs together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cap {
    /// ε of all runs together, at `delta`.
    pub epsilon: f64,
    /// δ.
    pub delta: f64,
}

impl std::fmt::Display for Cap {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "ε = {} at δ = {:e}", self.epsilon, self.delta)
    }
}

/// A data set and its budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataSet {
    /// The key.
    pub name: Name,
    /// The people it covers, in words.
    pub covers: String,
    /// The declared number of privacy units, from which runs compute sampling rate and steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
    /// The privacy unit, for all its runs.
    pub unit: Unit,
    /// The relation between neighboring data sets, for all its runs.
    pub adjacency: Adjacency,
    /// What the adversary sees, for all its runs.
    pub threat: Threat,
    /// The initial cap.
    pub cap: Cap,
    /// Who approved the budget.
    pub approver: String,
    /// The last second at which runs may start, since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// The owner declares that nobody is in both this version and another version of the same name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_people: bool,
}

/// The cost of a run: its releases, and the guarantee they are for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The privacy unit.
    pub unit: Unit,
    /// What the adversary sees.
    pub threat: Threat,
    /// δ of the run's own guarantee.
    pub delta: f64,
    /// All releases.
    pub releases: Composition,
}

/// The planned cost of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// A random number in hexadecimal, chosen by the run.
    pub id: String,
    /// The data set.
    pub dataset: Name,
    /// The run's folder.
    pub run: String,
    /// The command that reserves.
    pub verb: String,
    /// What the run will release.
    pub cost: Cost,
}

/// The actual cost of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settlement {
    /// The reservation's id.
    pub reservation: String,
    /// What the run has released.
    pub cost: Cost,
    /// Number of entries of the run's ledger.
    pub entries: u64,
    /// Hash of the last line of the run's ledger.
    pub ledger: String,
    /// Whether the run made fewer releases than planned. Its cost then assumes that the decision to
    /// stop did not depend on anything it released or displayed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
}
