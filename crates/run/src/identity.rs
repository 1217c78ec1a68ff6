//! identity.json: what must be the same when a run is resumed.

use serde::{Deserialize, Serialize};

/// What must be the same when a run is resumed; kept in the run folder while the run lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Hash of everything that the releases are a function of.
    pub run: String,
    /// What determines floating-point rounding: version, device, threads, kernels.
    pub machine: String,
    /// Number of processes (ranks) whose sums are added up, which determines rounding, too.
    #[serde(default = "one")]
    pub ranks: usize,
    /// The most ranks that the run was made on so far: it may have begun on more.
    #[serde(default = "one")]
    pub most_ranks: usize,
}

fn one() -> usize {
    1
}
