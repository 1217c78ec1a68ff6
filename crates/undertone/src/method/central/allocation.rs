//! Where the noise goes: over the coordinates of a gradient, and over time.
//!
//! A method of private training is an [`Allocator`]: before each step it says how the length of a
//! unit's gradient is measured and bounded, and how much noise each coordinate gets. [`Allocation`]
//! is that answer, and knows its effective noise multiplier. A new method is a file beside this one,
//! a variant of [`AllocationPlan`](super::AllocationPlan) and a line in `CentralPlan::allocator`.
//!
//! # The lemma with weights
//!
//! Let a unit move coordinate j of group k by v_j, with (Σ_{j∈k} a_j² v_j²)^½ ≤ C_k: gradients are
//! clipped in the norm with weights a². Let coordinate j get Gaussian noise of deviation s_k/b_j.
//! Scaled to unit noise, the group moves by (Σ_j (b_j v_j/s_k)²)^½ ≤ (C_k/s_k) · max_{j∈k} b_j/a_j,
//! and some v reaches it: all of it on the coordinate with the largest ratio. So by the [lemma of
//! groups](crate::noise)
//!
//! ```text
//! σ_eff = ( Σ_k (C_k/s_k · max_{j∈k} b_j/a_j)² )^(−½).
//! ```
//!
//! - Clipping and noise with the same weights, a = b: the weights cancel, and the step is worth
//!   what it would be worth without any. Noise may be moved from one coordinate to another for
//!   nothing, so long as the clipping knows.
//! - Clipping without weights, a = 1, and noise with them, as ANADP was published: the quietest
//!   coordinate decides.
//!
//! # What an allocation may depend on
//!
//! Composition holds for mechanisms that are chosen in view of what was released before, if each of
//! them is worth its entry in the ledger. So an [`Allocator`] sees constants, the pretrained model,
//! and what was [`Released`]: [`Allocator::observe`] is handed nothing else. What was published
//! with weights or masks from raw gradients is a [`Published`] allocator; only runs in paper mode,
//! whose ledger says that it guarantees nothing, can have one.

use crate::gradient::{Bounds, ClippedSum, Measure, Share, Weights};
use crate::method::Released;
use crate::model::{ParameterId, Parameters};
use crate::noise::GroupedGaussian;
use crate::tensor::{Host, Result};
use std::sync::Arc;

/// The smallest `f32` that is no smaller, so that no coordinate gets less noise than the ledger
/// says.
pub(crate) fn no_less(deviation: f64) -> f32 {
    let nearest = deviation as f32;
    if f64::from(nearest) < deviation { nearest.next_up() } else { nearest }
}

/// One step: how gradients are measured and bounded, and the noise of every coordinate.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// How the length of a unit's gradient is measured, group by group.
    pub measure: Arc<Measure>,
    /// C_k.
    pub bounds: Bounds,
    /// s_k.
    pub deviations: Vec<f64>,
    /// b², if they are not those of the measure.
    pub noise_weights: Option<Arc<dyn NoiseWeights>>,
}

/// b² of the coordinates of each parameter.
pub trait NoiseWeights: std::fmt::Debug + Send + Sync {
    /// The largest of a parameter's, or a bound of it; none if it has none.
    fn largest(&self, parameter: ParameterId) -> Option<f64>;

    /// Writes `factor`/b of the coordinates from `start` on.
    fn write_inverse_roots(
        &self,
        parameter: ParameterId,
        factor: f32,
        start: usize,
        out: &mut [f32],
    );
}

impl NoiseWeights for Vec<Option<Weights>> {
    fn largest(&self, parameter: ParameterId) -> Option<f64> {
        self[parameter.index()].as_ref().map(Weights::largest)
    }

    fn write_inverse_roots(
        &self,
        parameter: ParameterId,
        factor: f32,
        start: usize,
        out: &mut [f32],
    ) {
        match &self[parameter.index()] {
            Some(weights) => weights.write_inverse_roots(factor, start, out),
            None => out.fill(factor),
        }
    }
}

impl Allocation {
    /// Noise of one deviation in all groups, divided by the roots of the measure's weights.
    pub(super) fn even(measure: &Arc<Measure>, bounds: &Bounds, deviation: f64) -> Self {
        Self {
            measure: measure.clone(),
            bounds: bounds.clone(),
            deviations: vec![deviation; measure.groups()],
            noise_weights: None,
        }
    }

    /// What the step is worth: σ_eff of the lemma above.
    pub fn noise_multiplier(&self) -> f64 {
        let mut bounds = self.bounds.lengths().to_vec();
        if let Some(weights) = &self.noise_weights {
            let mut largest = vec![0.0_f64; bounds.len()];
            for (parameter, share) in self.measure.shares() {
                match (share, weights.largest(parameter)) {
                    (Share::Plain(group), Some(found)) => {
                        largest[*group] = largest[*group].max(found)
                    }
                    // Nothing is known of other pairs, so nothing is claimed.
                    _ => return 0.0,
                }
            }
            bounds.iter_mut().zip(largest).for_each(|(bound, largest)| *bound *= largest.sqrt());
        }
        GroupedGaussian::new(bounds, self.deviations.clone()).noise_multiplier()
    }

    /// The deviation of the noise of a parameter's coordinates, if it is the same for all of them.
    pub fn deviation(&self, parameter: ParameterId) -> Option<f64> {
        match (self.measure.of(parameter)?, &self.noise_weights) {
            (Share::Plain(group), None) => Some(self.deviations[*group]),
            _ => None,
        }
    }

    /// Writes the deviations of a parameter's coordinates from `start` on.
    pub fn write_deviations(&self, parameter: ParameterId, start: usize, out: &mut [f32]) {
        let Some(share) = self.measure.of(parameter) else { return out.fill(0.0) };
        match (share, &self.noise_weights) {
            (Share::Plain(group), None) => out.fill(no_less(self.deviations[*group])),
            (Share::Plain(group), Some(weights)) => {
                weights.write_inverse_roots(
                    parameter,
                    no_less(self.deviations[*group]),
                    start,
                    out,
                );
            }
            (Share::Weighted(group, weights), _) => {
                weights.write_inverse_roots(no_less(self.deviations[*group]), start, out);
            }
            (Share::Split(sides), _) => {
                let [(one, mask), (other, _)] = sides;
                let (one, other) =
                    (no_less(self.deviations[*one]), no_less(self.deviations[*other]));
                let mask = &mask[start..];
                out.iter_mut()
                    .zip(mask)
                    .for_each(|(out, m)| *out = if *m == 1.0 { one } else { other });
            }
        }
    }
}

/// A method: how the noise of each step is allocated, in view of what was released before.
pub trait Allocator: std::fmt::Debug + Send + Sync {
    /// The allocation of the coming step. In proved mode it is worth at least `noise_multiplier`.
    fn allocation(&self, noise_multiplier: f64) -> Allocation;

    /// Learns from what a step released.
    fn observe(&mut self, _released: Released, _parameters: &Parameters) -> Result<()> {
        Ok(())
    }

    /// What it has learnt, by name, for a checkpoint.
    fn state(&self) -> Vec<(String, Host)> {
        Vec::new()
    }

    /// Takes up what a checkpoint holds under the names of [`Self::state`]; whether everything was
    /// there.
    fn restore(&mut self, _find: &dyn Fn(&str) -> Option<Vec<f32>>) -> bool {
        true
    }
}

/// A method as published, which looks at sums before there is noise on them. Nothing is proved of
/// it.
pub trait Published: Allocator {
    /// Looks at the sum that is about to be released.
    fn look(&mut self, raw: &ClippedSum, parameters: &Parameters) -> Result<()>;
}

/// A method in one of its two modes.
#[derive(Debug)]
pub enum AllocationMethod {
    /// Every release is worth what the ledger says.
    Proved(Box<dyn Allocator>),
    /// As published.
    Published(Box<dyn Published>),
}

impl AllocationMethod {
    /// The allocator.
    pub fn allocator(&self) -> &dyn Allocator {
        match self {
            Self::Proved(allocator) => allocator.as_ref(),
            Self::Published(allocator) => allocator.as_ref(),
        }
    }

    /// The allocator, to be changed.
    pub fn allocator_mut(&mut self) -> &mut dyn Allocator {
        match self {
            Self::Proved(allocator) => allocator.as_mut(),
            Self::Published(allocator) => allocator.as_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::no_less;

    #[test]
    fn no_deviation_is_rounded_down() {
        assert_eq!(no_less(0.0), 0.0);
        assert_eq!(no_less(0.75), 0.75);
        for i in 1..10_000 {
            let deviation = f64::from(i).sqrt() * 1e-3;
            let given = f64::from(no_less(deviation));
            assert!(
                (deviation..deviation * (1.0 + 1.2e-7)).contains(&given),
                "{deviation} became {given}"
            );
        }
    }
}
