//! Private gradients by book-keeping: one backward pass, and no gradient of an example is ever
//! formed where that can be avoided.
//!
//! # What is computed
//!
//! For privacy units i (examples, or all examples of an author) with gradients g_i in groups of
//! coordinates k, [`Clip`] gives each group a factor c_{i,k} ≥ 0 with c_{i,k} ‖g_{i,k}‖ ≤ C_k, and
//! the *clipped sum* is Σ_i c_{i,k} g_{i,k}. Adding or removing one unit moves it by a vector whose
//! groups are no longer than the C_k, whatever the other units are. That is all that the proof of
//! the [mechanism](crate::mechanism) asks for.
//!
//! - The norms that the factors come from are upper bounds: rounding in them cannot let a unit
//!   through that is too long.
//! - A unit whose gradient is not finite counts with factor 0. It is replaced by zeros and not
//!   skipped, so that neither a sample nor what is paid for it depends on it.
//! - But for rounding, a unit's gradient and factor depend on that unit and on nothing else in the
//!   batch, so micro-batches change nothing.
//! - Dropout: which random mask a sequence gets depends on its place in the batch, and so on the
//!   others. The masks are independent of each other and of the data and secret, so for two
//!   neighbouring batches they can be thought to be dealt in such a way that every common unit has
//!   the same in both. For each such deal the bound above holds, and a mixture of pairs of outputs
//!   is no easier to tell apart than its worst pair (the hockey-stick divergence is jointly
//!   convex).
//!
//! # What is not covered
//!
//! Arithmetic is in `f32`. How many rows a product has decides the order of its additions, so one
//! more unit also moves the others' gradients, by about 1e-7 of their length each. The ledger names
//! this as an assumption.

mod book;
mod clip;
mod measure;
mod sum;
mod unit;
mod weights;

pub use book::Book;
pub use clip::{Bounds, Clip, Clipped};
pub use measure::{Measure, Share};
pub use sum::ClippedSum;
pub use unit::UnitRows;
pub use weights::{JUST_ABOVE, Weights};
