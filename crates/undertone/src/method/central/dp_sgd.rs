//! DP-SGD: the same noise on every coordinate, with flat, per-layer or automatic clipping.

use super::allocation::{Allocation, Allocator};
use crate::gradient::{Bounds, Clip, Clipping, Measure};
use crate::model::Parameters;
use std::sync::Arc;

/// DP-SGD's allocator.
#[derive(Clone, Debug)]
pub struct DpSgd {
    measure: Arc<Measure>,
    bounds: Bounds,
    bound: f64,
}

impl DpSgd {
    pub fn new(clip: &Clip, parameters: &Parameters) -> Self {
        let measure = Arc::new(clip.measure(parameters));
        let bounds = clip.bounds(measure.groups());
        Self { measure, bounds, bound: clip.bound() }
    }
}

impl Allocator for DpSgd {
    /// With K bounds of C/√K and std σC, σ_eff = (K · (C/√K / σC)²)^(−½) = σ.
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        Allocation::even(&self.measure, &self.bounds, noise_multiplier * self.bound)
    }
}
