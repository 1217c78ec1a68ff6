//! The release of a parameter's sum and its update by the optimiser, in one pass over memory.
//!
//! ```text
//! g = (sum + noise) / divisor        the released gradient; without noise in non-private training
//! (w, m, v) = rule(w, g, m, v)       SGD with momentum, AdamW, or AdamW corrected for the noise
//! ```
//!
//! The noise of a coordinate is a function of (key, step, coordinate) alone and the same, bit by bit,
//! on every backend.

use super::Matrix;
use super::backend::{Backend, on_backend};
use super::error::{Result, fits};
use crate::noise::Noise;

/// A parameter's sum, value and moments, all of one shape. After the update, the sum is the released
/// gradient.
#[derive(Clone, Debug)]
pub struct UpdateState<M = Matrix> {
    pub sum: M,
    pub value: M,
    pub first: M,
    pub second: M,
}

/// The standard deviation of the noise in each coordinate of a sum.
#[derive(Clone, Copy)]
pub enum Stds<'a> {
    /// The same in all coordinates.
    Same(f32),
    /// Writes those from a coordinate of the parameter on.
    Each(&'a (dyn Fn(usize, &mut [f32]) + Sync)),
}

/// The noise of a release.
#[derive(Clone, Copy)]
pub struct NoiseOfRelease<'a> {
    pub noise: &'a Noise,
    /// Index of the step, which the noise is a function of.
    pub step: u64,
    /// Index of the parameter's first coordinate among all, a multiple of
    /// [`NOISE_BLOCK`](crate::noise::NOISE_BLOCK).
    pub first: u64,
    pub stds: Stds<'a>,
}

/// How the released gradient moves a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// m ← μ m + g, w ← w − η m.
    Sgd { momentum: f32 },
    /// Adam with decoupled weight decay.
    Adam {
        betas: (f32, f32),
        epsilon: f32,
        /// Bias corrections 1 − β^t of both moments.
        corrections: (f32, f32),
        /// Whether the variance of the noise is subtracted from the second moment.
        corrected: bool,
    },
}

/// One parameter's release and update.
#[derive(Clone, Copy)]
pub struct ParameterUpdate<'a> {
    /// None in non-private training.
    pub noise: Option<NoiseOfRelease<'a>>,
    /// Divisor of the noisy sum.
    pub divisor: f32,
    /// Standard deviation of the noise in the released gradient, if it is the same for all
    /// coordinates.
    pub gradient_std: Option<f32>,
    pub learning_rate: f32,
    /// Decoupled weight decay.
    pub decay: f32,
    pub rule: Rule,
}

/// The smallest denominator of corrected Adam, as a share of the noise's std: below it the second
/// moment is noise only.
pub(super) const CORRECTION_FLOOR: f32 = 0.25;

/// Adds the noise to a parameter's sum and updates the parameter.
pub fn release_and_update(state: UpdateState, update: &ParameterUpdate) -> Result<UpdateState> {
    const NAME: &str = "release and update";
    let UpdateState { sum, value, first, second } = state;
    for other in [&value, &first, &second] {
        let rule = "sum, value and moments must have the same shape";
        fits(sum.shape() == other.shape(), NAME, sum.shape(), other.shape(), rule)?;
    }
    on_backend!(NAME, &value, |B, at| {
        let [sum, value] = [at.take(sum)?, at.take(value)?];
        let [first, second] = [at.take(first)?, at.take(second)?];
        let state = UpdateState { sum, value, first, second };
        let UpdateState { sum, value, first, second } = B::release_and_update(state, update)?;
        let [sum, value, first, second] = [sum, value, first, second].map(B::wrap);
        Ok(UpdateState { sum, value, first, second })
    })
}
