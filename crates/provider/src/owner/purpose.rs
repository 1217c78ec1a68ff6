//! The purpose of a release.

use crate::frame::Kind;
use crate::task::Task;
use undertone_accounting::Event;

/// The purpose of a release. Each purpose has its own ids, noise and ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For training.
    Contribution,
    /// For prediction.
    Query,
}

impl Purpose {
    /// The name used in hashes and file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Contribution => "contribution",
            Self::Query => "query",
        }
    }

    /// The kind of frame that carries it.
    pub fn kind(self) -> Kind {
        match self {
            Self::Contribution => Kind::Contribution,
            Self::Query => Kind::Query,
        }
    }

    /// The events of one row.
    pub fn events(self, task: &Task) -> Vec<Event> {
        match self {
            Self::Contribution => task.events(),
            Self::Query => vec![task.query_event()],
        }
    }
}
