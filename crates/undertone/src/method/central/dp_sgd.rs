//! The same noise everywhere: DP-SGD, with one bound for the whole gradient or one for each layer.

use super::allocation::{Allocation, Allocator};
use crate::gradient::{Bounds, Clip, Clipping, Measure};
use crate::model::Parameters;
use std::sync::Arc;

/// DP-SGD.
#[derive(Clone, Debug)]
pub struct DpSgd {
    measure: Arc<Measure>,
    bounds: Bounds,
    bound: f64,
}

impl DpSgd {
    /// As the clipping says.
    pub fn new(clip: &Clip, parameters: &Parameters) -> Self {
        let measure = Arc::new(clip.measure(parameters));
        let bounds = clip.bounds(measure.groups());
        Self { measure, bounds, bound: clip.bound() }
    }
}

impl Allocator for DpSgd {
    /// With K bounds of C/√K and deviation σC, σ_eff = (K · (C/√K / σC)²)^(−½) = σ.
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        Allocation::even(&self.measure, &self.bounds, noise_multiplier * self.bound)
    }
}
