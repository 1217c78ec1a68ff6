//! DP-SGD: the same noise on every coordinate, with flat, per-layer or automatic clipping.

use crate::gradient::{Bounds, Clip, Clipping, ClippingGroups};
use crate::model::Parameters;
use crate::step::{Allocation, Allocator};
use std::sync::Arc;

/// The allocator of DP-SGD.
#[derive(Clone, Debug)]
pub struct DpSgd {
    groups: Arc<ClippingGroups>,
    bounds: Bounds,
    bound: f64,
}

impl DpSgd {
    pub fn new(clip: &Clip, parameters: &Parameters) -> Self {
        let groups = Arc::new(clip.groups(parameters));
        let bounds = clip.bounds(groups.count());
        Self { groups, bounds, bound: clip.bound() }
    }
}

impl Allocator for DpSgd {
    /// With K bounds of C/√K and std σC, σ_eff = (K · (C/√K / σC)²)^(−½) = σ.
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        Allocation::even(&self.groups, &self.bounds, noise_multiplier * self.bound)
    }
}
