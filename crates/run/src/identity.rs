//! identity.json: what must be the same when a run is resumed.

use serde::{Deserialize, Serialize};

/// Kept in the run folder while the run lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Hash of everything that the released sums are a function of.
    pub run: String,
    /// What decides the order of floating-point additions: version, device, threads, kernels.
    pub machine: String,
}
