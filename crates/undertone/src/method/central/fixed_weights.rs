//! Weights that are known before the first step and stay the same: those of public data.

use super::allocation::{Allocation, Allocator};
use crate::gradient::{Bounds, Clip, Clipping, ClippingGroups, Weights};
use crate::model::Parameters;
use std::sync::Arc;

/// An allocator with constant weights, for clipping and for noise: by the
/// lemma of `allocation` with a = b its effective noise multiplier is σ, whatever they are.
/// They are a function of public data and of the pretrained model, so they reveal nothing.
#[derive(Clone, Debug)]
pub struct FixedWeights {
    groups: Arc<ClippingGroups>,
    bounds: Bounds,
    bound: f64,
}

impl FixedWeights {
    /// Weights by parameter; a parameter without any has weight 1.
    pub fn new(clip: &Clip, weights: &[Option<Weights>], parameters: &Parameters) -> Self {
        let plain = clip.groups(parameters);
        let groups = plain.weighted(|id| weights.get(id.index()).cloned().flatten());
        Self { bounds: clip.bounds(plain.count()), bound: clip.bound(), groups: Arc::new(groups) }
    }
}

impl Allocator for FixedWeights {
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        Allocation::even(&self.groups, &self.bounds, noise_multiplier * self.bound)
    }
}
