//! One training step, without files: clipping, noise, optimizer.
//!
//! ```text
//! Step { groups, bounds, stds, σ_eff }     begin_step   once per step, by the method's allocator
//! clipped sum over the batch               accumulate   borrows the step
//! ledger entry                             RunLedger::record → Recorded
//! noise, optimizer, new weights            release      takes sum, step and its Cost
//! ```
//!
//! A release takes a [`Cost`]. For private examples, this must be [`Cost::Recorded`], which only
//! [`RunLedger::record`] creates, so private examples are never released without a ledger entry.
//! Methods ([`crate::method`]) are layered above this module, and the training loop
//! ([`crate::train`]) above both.

mod allocation;
mod average;
mod correlation;
mod filter;
mod gather;
mod learner;
mod ledger;
pub mod optimizer;
mod release;

pub(crate) use allocation::no_less;
pub use allocation::{
    Allocation, AllocationMethod, Allocator, COUNT_SENSITIVITY, NoiseWeights, Published,
    StepCorrelation,
};
pub use average::AveragedWeights;
pub use correlation::Correlation;
pub use filter::GradientFilter;
pub(crate) use gather::Kept;
pub use learner::{Learner, Protection, Step, StepSettings};
pub use ledger::{Cost, Recorded, RunLedger};
pub use release::{Coordinates, GradientRelease, Released};
