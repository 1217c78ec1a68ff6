//! Clipped sums of per-example gradients by ghost clipping and book-keeping: one backward pass, or
//! two where activations are computed again to save memory; a per-example gradient is formed only
//! where that is cheaper, or the only way to its norm.
//!
//! # What is computed
//!
//! For privacy units i (examples, or all examples of a user) with gradients g_i whose coordinates
//! are split into groups k, [`Clip`] gives each group a clipping factor c_{i,k} ≥ 0 with c_{i,k}
//! ‖g_{i,k}‖ ≤ C_k, and the *clipped sum* is Σ_i c_{i,k} g_{i,k}. Adding or removing one unit
//! changes group k of the sum by a vector of ℓ2 norm at most C_k, whatever the other units are: C_k
//! is the ℓ2 sensitivity. The proof of the [mechanism](crate::noise) needs nothing else.
//!
//! - The per-unit norms behind the clipping factors are upper bounds that include rounding, so
//!   rounding never lets a gradient above C_k through.
//! - A unit whose gradient is not finite gets clipping factor 0. It counts as zeros and is not
//!   skipped, so neither the Poisson sample nor its accounting depends on its values.
//! - Up to rounding, a unit's gradient and clipping factor depend on that unit alone, so the split
//!   into micro-batches changes nothing.
//! - Dropout: the random mask of a sequence depends on its position in the batch, and so on the
//!   other sequences. The masks are independent of each other, of the data and of the noise key, so
//!   for two neighbouring batches they can be coupled such that every common unit has the same mask
//!   in both. For each coupled choice the bound above holds, and a mixture of pairs of outputs is
//!   no easier to tell apart than its worst pair (the hockey-stick divergence is jointly convex).
//!
//! # What is not covered
//!
//! Arithmetic is in `f32`. The number of rows of a matrix product decides the order of its
//! additions, so one more unit also changes the other units' gradients, by about 1e-7 of their norm
//! each. The ledger names this as an assumption.

mod all_reduce;
mod clip;
#[cfg(test)]
mod extremes;
mod ghost_clipping;
mod groups;
mod reduce_scatter;
mod second_pass;
mod sum;
mod unit;
mod weights;

pub use clip::{Bounds, Clipped, Clipping};
pub use ghost_clipping::GhostClipping;
pub use groups::{ClippingGroups, ParameterGroups};
pub use second_pass::{ClippedUnits, SecondPass};
pub use sum::ClippedSum;
pub use undertone_run::Clip;
pub use unit::UnitRows;
pub use weights::{JUST_ABOVE, Weights};
