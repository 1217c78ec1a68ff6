//! Adaptive clipping (after Andrew, Thakkar, McMahan and Ramaswamy, 2021): DP-SGD whose clipping
//! norm C tracks a quantile of the gradient norms.
//!
//! Each step releases two values about its Poisson sample: the sum of the gradients, clipped to
//! norm C, with noise of std s; and Σ_i (b_i − ½), where b_i indicates whether ‖g_i‖ ≤ C, with
//! noise of std s_b. The latter determines the share of gradients within C, and
//!
//! ```text
//! C ← C · exp(−η (share − quantile)).
//! ```
//!
//! **What is proved.** Adding or removing one unit moves the first value by at most C and the
//! second by exactly ½. By the [lemma of groups](crate::noise), with the count as one more group,
//! the step is one Poisson-subsampled Gaussian mechanism with 1/σ² = (C/s)² + (1/(2 s_b))². So for
//! the σ that the ledger records,
//!
//! ```text
//! s = C (1/σ² − 1/(2 s_b)²)^(−½).
//! ```
//!
//! C is a function of what earlier steps released, which adaptive composition allows. The divisor
//! of the share is the expected number of units, since the actual number is private.

use crate::gradient::{Clip, Clipping, ClippingGroups};
use crate::model::Parameters;
use crate::step::{Allocation, Allocator, COUNT_SENSITIVITY};
use crate::tensor::Host;
use std::sync::Arc;
use undertone_run::AdaptiveClip;

/// Outside this range, products with C overflow or underflow `f32`.
const RANGE: (f32, f32) = (1e-10, 1e10);
/// Minimum ratio of the count's noise std to the noise multiplier: at ½, the count alone would use
/// up the step's privacy cost.
const LEAST_RATIO: f64 = 0.6;

/// The allocator of DP-SGD with adaptive clipping.
#[derive(Clone, Debug)]
pub struct AdaptiveClipping {
    settings: AdaptiveClip,
    groups: Arc<ClippingGroups>,
    /// Standard deviation of the noise on the count.
    count_std: f64,
    /// C of the next step.
    bound: f32,
}

impl AdaptiveClipping {
    /// Starts with the initial C of `settings`; `count_std` is the std of the noise on the count.
    pub fn new(settings: AdaptiveClip, count_std: f64, parameters: &Parameters) -> Self {
        let groups = Arc::new(Clip::Adaptive(settings).groups(parameters));
        Self { settings, groups, count_std, bound: settings.initial as f32 }
    }

    /// C of the next step.
    pub fn bound(&self) -> f32 {
        self.bound
    }
}

/// The std of the count's noise for a run with these noise multipliers and this expected number of
/// units; `None` if it is too small for these noise multipliers.
pub fn count_std(settings: &AdaptiveClip, noise_multipliers: &[f64], units: f64) -> Option<f64> {
    let most = noise_multipliers.iter().copied().fold(0.0, f64::max);
    let usual = (units / 20.0).max(2.0 * most).max(1.0);
    Some(settings.noise.unwrap_or(usual)).filter(|&std| std >= LEAST_RATIO * most)
}

impl Allocator for AdaptiveClipping {
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        let bound = f64::from(self.bound);
        let left = noise_multiplier.powi(-2) - (COUNT_SENSITIVITY / self.count_std).powi(2);
        // If nothing is left, no amount of noise on the gradients is enough. The effective noise
        // multiplier then reflects this, and the release is rejected.
        let std = bound * left.max(0.0).sqrt().recip();
        let bounds = Clip::Flat(bound).bounds(1);
        Allocation {
            count_std: Some(self.count_std),
            ..Allocation::even(&self.groups, &bounds, std)
        }
    }

    fn observe_share(&mut self, share: f64) {
        let AdaptiveClip { quantile, rate, .. } = self.settings;
        let next = f64::from(self.bound) * (-rate * (share - quantile)).exp();
        self.bound = (next as f32).clamp(RANGE.0, RANGE.1);
    }

    fn state(&self) -> Vec<(String, Host)> {
        vec![("clip".to_owned(), Host::from_vec(1, 1, vec![self.bound]))]
    }

    fn restore(&mut self, find: &dyn Fn(&str) -> Option<Vec<f32>>) -> bool {
        match find("clip").as_deref() {
            Some([bound]) if bound.is_finite() && *bound > 0.0 => {
                self.bound = *bound;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the noisy share is, C stays in the range where products with it are normal numbers,
    /// and the noise on the gradients is what the ledger states for C.
    #[test]
    fn the_bound_stays_within_its_range() {
        let settings = AdaptiveClip { quantile: 0.5, rate: 10.0, initial: 1e-10, noise: None };
        let mut clipping = AdaptiveClipping::new(settings, 10.0, &Parameters::default());
        for share in [0.4, -1e300, 1e300, 0.5, f64::MAX, f64::MIN, f64::INFINITY, -1e30] {
            clipping.observe_share(share);
            let bound = clipping.bound();
            assert!((RANGE.0..=RANGE.1).contains(&bound), "{share}: {bound}");
            let allocation = clipping.allocation(1.5);
            assert_eq!(allocation.bounds.thresholds(), [f64::from(bound)]);
            assert!((allocation.noise_multiplier() / 1.5 - 1.0).abs() < 1e-9, "{share}");
        }
    }
}
