//! What a release is for.

use crate::frame::Kind;
use crate::task::Task;
use undertone_accounting::Event;

/// What a release is for. Each purpose has its own ids, noise and ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To learn from.
    Contribution,
    /// To be predicted.
    Query,
}

impl Purpose {
    /// Its name, in hashes and names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Contribution => "contribution",
            Self::Query => "query",
        }
    }

    /// The frames that carry it.
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
