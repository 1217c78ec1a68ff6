//! Weights from public data, which are known before the first step and stay constant.

use crate::gradient::{Bounds, Clip, Clipping, ClippingGroups, Weights};
use crate::model::Parameters;
use crate::step::{Allocation, Allocator};
use std::sync::Arc;

/// An allocator with constant weights for both clipping and noise. By the lemma of `allocation`
/// with a = b, its effective noise multiplier is σ, whatever the weights are. The weights are a
/// function of public data and the pretrained model, so they reveal nothing.
#[derive(Clone, Debug)]
pub struct FixedWeights {
    groups: Arc<ClippingGroups>,
    bounds: Bounds,
    bound: f64,
}

impl FixedWeights {
    /// Creates the allocator from weights by parameter; a parameter without weights has weight 1.
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
