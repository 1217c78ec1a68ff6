//! Noise allocation: how much noise each coordinate of the gradient gets in each step.
//!
//! An allocation method is an [`Allocator`]. Before each step, it returns an [`Allocation`]: the
//! norm in which a unit's gradient is clipped, the clipping bounds, and the noise of each
//! coordinate. These determine the effective noise multiplier. To add a method, add a file in
//! `method/central`, a variant of [`AllocationPlan`](crate::method::central::AllocationPlan), and
//! an arm in `Central::begin` in `method/central/mod.rs`, which constructs the allocators.
//!
//! # The lemma with weights
//!
//! Suppose that a unit moves coordinate j of group k by v_j, with (Σ_{j∈k} a_j² v_j²)^½ ≤ C_k:
//! gradients are clipped in the norm with weights a². Suppose that coordinate j gets Gaussian noise
//! of std s_k/b_j. Scaled to unit noise, the group moves by (Σ_j (b_j v_j/s_k)²)^½ ≤ (C_k/s_k) ·
//! max_{j∈k} b_j/a_j, with equality if v is concentrated on the coordinate with the largest ratio.
//! So by the [lemma of groups](crate::noise)
//!
//! ```text
//! σ_eff = ( Σ_k (C_k/s_k · max_{j∈k} b_j/a_j)² )^(−½).
//! ```
//!
//! - If clipping and noise use the same weights, a = b, the weights cancel, and the effective noise
//!   multiplier is the same as without weights. Moving noise between coordinates costs no privacy,
//!   as long as clipping uses the same weights.
//! - If clipping is unweighted, a = 1, and only the noise is weighted, as in ANADP as published,
//!   the coordinate with the least noise determines σ_eff.
//!
//! # What an allocation may depend on
//!
//! Adaptive composition holds for mechanisms that are chosen based on earlier releases, if each has
//! at least the noise multiplier of its ledger entry. An [`Allocator`] therefore sees only
//! constants, the pretrained model, and [`Released`] values: [`Allocator::observe`] receives
//! nothing else. Methods that were published with weights or masks computed from raw gradients are
//! [`Published`] allocators. Only runs in paper mode, whose ledger states no guarantee, can use
//! one.

use super::correlation::Correlation;
use super::release::Released;
use crate::gradient::{Bounds, ClippedSum, ClippingGroups, ParameterGroups, Weights};
use crate::model::{ParameterId, Parameters};
use crate::noise::GroupedGaussian;
use crate::tensor::{Host, Result};
use std::sync::Arc;

/// Rounds up to `f32`, so that no coordinate gets less noise than the ledger states.
pub(crate) fn no_less(std: f64) -> f32 {
    let nearest = std as f32;
    if f64::from(nearest) < std { nearest.next_up() } else { nearest }
}

/// Clipping and noise of one step.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The groups, and their (possibly weighted) norms of a unit's gradient.
    pub groups: Arc<ClippingGroups>,
    /// Clipping bounds C_k, one for each group.
    pub bounds: Bounds,
    /// Noise scales s_k, one for each group: coordinate j gets noise of std s_k/b_j.
    pub stds: Vec<f64>,
    /// Noise weights b², if they differ from the weights a² of the clipping norm.
    pub noise_weights: Option<Arc<dyn NoiseWeights>>,
    /// Standard deviation of the noise on the number of units within the clipping bound, if the
    /// step also releases that count. The count is one more group, which a unit moves by ½.
    pub count_std: Option<f64>,
    /// How the noise of this step is correlated with that of earlier steps.
    pub correlation: StepCorrelation,
}

/// How the noise of a step is correlated with that of earlier steps, in units of the fresh noise
/// drawn in this step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepCorrelation {
    /// The noise with which the step is accounted, c_0 of [`Bands`](crate::noise::Bands).
    pub first: f64,
    /// Standard deviation of a coordinate's total noise.
    pub spread: f64,
}

impl StepCorrelation {
    /// Independent noise.
    pub const NONE: Self = Self { first: 1.0, spread: 1.0 };
}

/// The amount by which one unit moves the [centered
/// count](crate::gradient::Clipped::centered_count).
pub const COUNT_SENSITIVITY: f64 = 0.5;

/// Noise weights b² of each parameter's coordinates.
pub trait NoiseWeights: std::fmt::Debug + Send + Sync {
    /// Upper bound on a parameter's weights; `None` if it has no weights.
    fn largest(&self, parameter: ParameterId) -> Option<f64>;

    /// Writes `factor`/b for the coordinates starting at `start`.
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
    /// The same noise scale in all groups, with noise weighted like the clipping norm (a = b).
    pub(crate) fn even(groups: &Arc<ClippingGroups>, bounds: &Bounds, std: f64) -> Self {
        Self {
            groups: groups.clone(),
            bounds: bounds.clone(),
            stds: vec![std; groups.count()],
            noise_weights: None,
            count_std: None,
            correlation: StepCorrelation::NONE,
        }
    }

    /// Effective noise multiplier: σ_eff of the lemma above.
    pub fn noise_multiplier(&self) -> f64 {
        let mut bounds = self.bounds.thresholds().to_vec();
        if let Some(weights) = &self.noise_weights {
            let mut largest = vec![0.0_f64; bounds.len()];
            for (parameter, share) in self.groups.shares() {
                match (share, weights.largest(parameter)) {
                    (ParameterGroups::Plain(group), Some(ratio)) => {
                        largest[*group] = largest[*group].max(ratio)
                    }
                    // The lemma is not evaluated for other combinations, so claim no noise.
                    _ => return 0.0,
                }
            }
            bounds.iter_mut().zip(largest).for_each(|(bound, largest)| *bound *= largest.sqrt());
        }
        let mut stds = self.stds.clone();
        if let Some(std) = self.count_std {
            bounds.push(COUNT_SENSITIVITY);
            stds.push(std);
        }
        GroupedGaussian::new(bounds, stds).noise_multiplier() * self.correlation.first
    }

    /// Standard deviation of the noise in a parameter's sum, if it is the same for all coordinates.
    pub fn std(&self, parameter: ParameterId) -> Option<f64> {
        match (self.groups.of(parameter)?, &self.noise_weights) {
            (ParameterGroups::Plain(group), None) => Some(self.stds[*group]),
            _ => None,
        }
    }

    /// One factor per row and one per column whose products are the standard deviations of the
    /// noise in a parameter's sum, if such a factorization exists.
    pub fn std_factors(&self, parameter: ParameterId) -> Option<(Vec<f32>, Vec<f32>)> {
        match self.groups.of(parameter)? {
            ParameterGroups::Weighted(group, weights) => {
                weights.inverse_roots(no_less(self.stds[*group]))
            }
            ParameterGroups::Plain(_) | ParameterGroups::Split(_) => None,
        }
    }

    /// Writes the standard deviations of the noise of a parameter's coordinates, starting at
    /// `start`.
    pub fn write_stds(&self, parameter: ParameterId, start: usize, out: &mut [f32]) {
        let Some(share) = self.groups.of(parameter) else { return out.fill(0.0) };
        match (share, &self.noise_weights) {
            (ParameterGroups::Plain(group), None) => out.fill(no_less(self.stds[*group])),
            (ParameterGroups::Plain(group), Some(weights)) => {
                weights.write_inverse_roots(parameter, no_less(self.stds[*group]), start, out);
            }
            (ParameterGroups::Weighted(group, weights), _) => {
                weights.write_inverse_roots(no_less(self.stds[*group]), start, out);
            }
            (ParameterGroups::Split(sides), _) => {
                let [(inside, mask), (outside, _)] = sides;
                let (inside, outside) = (no_less(self.stds[*inside]), no_less(self.stds[*outside]));
                let mask = &mask.values()[start..];
                out.iter_mut()
                    .zip(mask)
                    .for_each(|(out, m)| *out = if *m == 1.0 { inside } else { outside });
            }
        }
    }
}

/// An allocation method: returns the allocation of each step, based on earlier releases.
pub trait Allocator: std::fmt::Debug + Send + Sync {
    /// The allocation of the next step. In proved mode its effective noise multiplier is at least
    /// `noise_multiplier`.
    fn allocation(&self, noise_multiplier: f64) -> Allocation;

    /// Whether it learns from the noisy gradients that a step released. Only then is
    /// [`Self::observe`] called, and only then are the gradients gathered from all ranks.
    fn observes(&self) -> bool {
        false
    }

    /// Updates the state from the noisy gradients released by a step.
    fn observe(&mut self, _released: Released, _parameters: &Parameters) -> Result<()> {
        Ok(())
    }

    /// Updates the state from the released fraction of units within the clipping bound, if the
    /// step's allocation had a [`count_std`](Allocation::count_std).
    fn observe_share(&mut self, _share: f64) {}

    /// How the noise of a step depends on that of earlier steps; `None` if it is independent.
    fn correlation(&mut self) -> Option<&mut Correlation> {
        None
    }

    /// Like [`Self::correlation`], but read-only.
    fn past(&self) -> Option<&Correlation> {
        None
    }

    /// State by tensor name, to be saved in a checkpoint.
    fn state(&self) -> Vec<(String, Host)> {
        Vec::new()
    }

    /// Restores the state from a checkpoint, using the names of [`Self::state`]. Returns whether it
    /// was complete.
    fn restore(&mut self, _find: &dyn Fn(&str) -> Option<Vec<f32>>) -> bool {
        true
    }
}

/// An allocation method as published, which uses the sum of a step before noise is added. It has no
/// proven guarantee.
pub trait Published: Allocator {
    /// Updates the state from the sum that is about to be released, before noise is added.
    fn observe_raw(&mut self, raw: &ClippedSum, parameters: &Parameters) -> Result<()>;

    /// Whether it also observes unclipped gradients.
    fn needs_unclipped(&self) -> bool {
        false
    }
}

/// An allocation method in proved or in paper mode.
#[derive(Debug)]
pub enum AllocationMethod {
    /// The effective noise multiplier of every release is at least the one recorded in the ledger.
    Proved(Box<dyn Allocator>),
    /// The method as published (paper mode).
    Published(Box<dyn Published>),
}

impl AllocationMethod {
    pub fn allocator(&self) -> &dyn Allocator {
        match self {
            Self::Proved(allocator) => allocator.as_ref(),
            Self::Published(allocator) => allocator.as_ref(),
        }
    }

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
    fn no_std_is_rounded_down() {
        assert_eq!(no_less(0.0), 0.0);
        assert_eq!(no_less(0.75), 0.75);
        for i in 1..10_000 {
            let std = f64::from(i).sqrt() * 1e-3;
            let given = f64::from(no_less(std));
            assert!((std..std * (1.0 + 1.2e-7)).contains(&given), "{std} became {given}");
        }
    }
}
