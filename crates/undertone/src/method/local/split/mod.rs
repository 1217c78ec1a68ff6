//! The two halves of a local DP model as two programs: the owner of the texts computes releases,
//! and the provider learns and predicts from them.
//!
//! ```text
//! plan ─ Split::make ─▶ pre(·) folder ─▶ OwnerHalf ─ releases ─▶ ProviderHalf ─▶ model folder
//! ```
//!
//! Nothing here opens a ledger or a connection: that is the responsibility of the code that
//! transfers the releases.

mod make;
mod owner;
mod provider;

pub use make::Split;
pub use owner::OwnerHalf;
pub use provider::{ProviderHalf, Received};

use undertone_accounting::Event;
use undertone_run::Releases;

/// The event that each epoch's release of an embedding adds to the earlier ones, with its epoch;
/// epochs that repeat an earlier release are omitted.
pub fn events(releases: &Releases) -> Vec<(usize, Event)> {
    super::accounting::events(releases)
}
