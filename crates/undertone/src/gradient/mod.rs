//! Clipped sums of per-example gradients, computed by ghost clipping with book-keeping. This takes
//! one backward pass, or two if activations are recomputed to save memory. A per-example gradient
//! that is smaller than its factors, such as that of LoRA, is formed and kept (`kept_gradients.rs`)
//! until it is clipped, and needs no second pass. Other gradients are formed only if that is
//! cheaper or the only way to compute their norm, and are never stored.
//!
//! # What is computed
//!
//! Let the privacy units i (examples, or all examples of a user) have gradients g_i whose
//! coordinates are split into groups k. [`Clip`] gives each group a clipping factor c_{i,k} ≥ 0
//! with c_{i,k} ‖g_{i,k}‖ ≤ C_k, and the *clipped sum* is Σ_i c_{i,k} g_{i,k}. Adding or removing
//! one unit changes group k of the sum by a vector of ℓ2 norm at most C_k, whatever the other units
//! are: C_k is the ℓ2 sensitivity. The proof of the [mechanism](crate::noise) needs nothing else.
//!
//! - The per-unit norms that determine the clipping factors are upper bounds that account for
//!   rounding, so rounding never lets a gradient exceed C_k.
//! - A unit whose gradient is not finite gets clipping factor 0. It is treated as zero but not
//!   skipped, so neither the Poisson sample nor its accounting depends on its values.
//! - Up to rounding, a unit's gradient and clipping factor depend on that unit alone, so the split
//!   into micro-batches does not affect the result.
//! - Dropout: the random mask of a sequence depends on its position in the batch, and so on the
//!   other sequences. The masks are independent of each other, of the data and of the noise key, so
//!   for two neighboring batches they can be coupled such that every common unit has the same mask
//!   in both. For each coupled choice the bound above holds, and a mixture of pairs of outputs is
//!   no easier to distinguish than its worst pair (the hockey-stick divergence is jointly convex).
//!
//! # What is not covered
//!
//! Arithmetic is in `f32`. The number of rows of a matrix product determines the order of its
//! additions, so adding a unit also changes the gradients of the other units, by about 1e-7 of
//! their norm each. The ledger states this as an assumption.

mod all_reduce;
mod clip;
#[cfg(test)]
mod extremes;
mod ghost_clipping;
mod groups;
mod kept_gradients;
mod reduce_scatter;
mod second_pass;
mod sum;
mod unit;
mod weights;

pub use clip::{Bounds, Clipped, Clipping};
pub use ghost_clipping::GhostClipping;
pub use groups::{ClippingGroups, ParameterGroups};
pub use kept_gradients::KeepGradients;
pub use second_pass::{ClippedUnits, SecondPass};
pub use sum::ClippedSum;
pub use undertone_run::Clip;
pub use unit::UnitRows;
pub use weights::{JUST_ABOVE, Weights};
