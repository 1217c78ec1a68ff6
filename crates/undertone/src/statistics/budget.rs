//! How a budget is split among the statistics.
//!
//! # Statement
//!
//! n Gaussian releases of sensitivity 1 with the same σ, plus a threshold with half of δ if there
//! is a vocabulary, have an ε no larger than the budget's, by the accountant's certified upper
//! bound. σ is the smallest value with this property.

use crate::error::Result;
use undertone_accounting::calibrate::least_noise;
use undertone_accounting::{Accountant, Adjacency, Composition, Event};

/// The noise of a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    pub epsilon: f64,
    pub delta: f64,
    /// Standard deviation of the noise of every sum, in units.
    pub noise_multiplier: f64,
    /// The δ of the vocabulary's threshold.
    pub threshold_delta: Option<f64>,
}

/// The share of δ that the threshold of a vocabulary uses.
const THRESHOLD_SHARE: f64 = 0.5;

/// The budget's noise for this many sums, one of which may be a vocabulary.
pub fn split(epsilon: f64, delta: f64, sums: usize, has_vocabulary: bool) -> Result<Budget> {
    let threshold_delta = has_vocabulary.then_some(THRESHOLD_SHARE * delta);
    let compose = |noise: f64| released(noise, sums, threshold_delta);
    let calibrated = least_noise(epsilon, delta, Accountant::Auto, (0.01, 1e7), compose)?;
    Ok(Budget { epsilon, delta, noise_multiplier: calibrated.noise, threshold_delta })
}

/// Everything that is released.
fn released(noise_multiplier: f64, sums: usize, threshold_delta: Option<f64>) -> Composition {
    let event = Event::Gaussian { noise_multiplier, sensitivity: 1.0 };
    let sums = Composition::new(Adjacency::AddRemove).with(event, sums as u64);
    match threshold_delta {
        Some(delta) => sums.with(Event::Threshold { delta }, 1),
        None => sums,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_kept_and_used() {
        for (epsilon, delta, sums, has_vocabulary) in [
            (0.2, 1e-6, 5, false),
            (0.2, 1e-6, 6, true),
            (0.01, 1e-9, 1, false),
            (8.0, 1e-5, 3, true),
        ] {
            let budget = split(epsilon, delta, sums, has_vocabulary).unwrap();
            let spent = |factor: f64| {
                let noise = budget.noise_multiplier * factor;
                let all = released(noise, sums, budget.threshold_delta);
                undertone_accounting::epsilon(&all, delta, Accountant::Auto).unwrap().epsilon.upper
            };
            assert!(spent(1.0) <= epsilon, "{budget:?}");
            assert!(spent(0.99) > epsilon, "{budget:?}");
        }
        assert!(split(0.0, 1e-6, 1, false).is_err() && split(1.0, 0.0, 1, false).is_err());
    }
}
