//! A lower bound on ε from one training run (Steinke, Nasr and Jagielski, 2023).
//!
//! # What is proved
//!
//! m canaries are each put into the training data or left out by a fair coin of their own. The
//! auditor sees what was released, guesses for r of the canaries (chosen in view of the release)
//! which way their coins fell, and is right v times. If training is (ε, δ)-differentially private
//! for adding or removing one example, then v is not much larger than a binomial number with r
//! tries and success probability p = e^ε/(1 + e^ε): with F(k) = P(Bin(r, p) ≥ k),
//!
//! ```text
//! P(v ≥ k) ≤ F(k) + 2mδ · max_{1 ≤ i ≤ k} (F(k − i) − F(k))/i.
//! ```
//!
//! So an ε for which the right side at the observed v is below 1 − confidence is refuted, and the
//! largest refuted one is a lower bound. How many guesses are made must be decided before the
//! scores are looked at.

use super::statistics::{at_least, binomial, largest};
use super::tradeoff;
use serde::Serialize;

/// What the auditor found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OneRun {
    /// Canaries.
    pub canaries: u64,
    /// Guesses.
    pub guesses: u64,
    /// Right ones.
    pub right: u64,
    /// ε is at least this, with the stated confidence, whatever the training is.
    pub epsilon_lower: f64,
    /// ε is at least this, with the stated confidence, if the training's trade-off curve is that of
    /// a Gaussian mechanism.
    pub epsilon_lower_if_gaussian: f64,
    /// δ of the statement.
    pub delta: f64,
    /// Probability that the statement is right, whatever the mechanism.
    pub confidence: f64,
}

/// The probability of so many right guesses or more, at most, if the training were (ε,
/// δ)-differentially private.
pub fn p_value(canaries: u64, guesses: u64, right: u64, epsilon: f64, delta: f64) -> f64 {
    let p = 1.0 / (1.0 + (-epsilon).exp());
    let tail = at_least(guesses, right, p);
    let (mut between, mut steepest) = (0.0, 0.0_f64);
    for i in 1..=right {
        between += binomial(guesses, right - i, p);
        steepest = steepest.max(between / i as f64);
    }
    (tail + 2.0 * canaries as f64 * delta * steepest).min(1.0)
}

/// The largest ε that is refuted; 0 if none is.
pub fn lower_bound(canaries: u64, guesses: u64, right: u64, delta: f64, confidence: f64) -> f64 {
    largest(|epsilon| p_value(canaries, guesses, right, epsilon, delta) < 1.0 - confidence)
}

/// Guesses "in" for the highest scores and "out" for the lowest, `guesses` in all, and bounds ε.
/// `inside` says how the coins fell.
pub fn audit(
    scores: &[f64],
    inside: &[bool],
    guesses: usize,
    delta: f64,
    confidence: f64,
) -> OneRun {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let clean = |i: usize| if scores[i].is_nan() { 0.0 } else { scores[i] };
    // Ties are broken by place, which has nothing to do with the coins.
    order.sort_by(|&a, &b| clean(b).total_cmp(&clean(a)).then(a.cmp(&b)));
    let guesses = guesses.min(scores.len());
    let (high, low) = (guesses.div_ceil(2), guesses / 2);
    let right = order[..high].iter().filter(|&&i| inside[i]).count()
        + order[order.len() - low..].iter().filter(|&&i| !inside[i]).count();
    let (canaries, guesses, right) = (scores.len() as u64, guesses as u64, right as u64);
    let by_tails = lower_bound(canaries, guesses, right, delta, confidence);
    let by_curve = tradeoff::lower_bound(canaries, guesses, right, delta, confidence);
    OneRun {
        canaries,
        guesses,
        right,
        // Both grow with the number of right guesses, so that the larger is as valid as either: see
        // `tradeoff`.
        epsilon_lower: by_tails.max(by_curve),
        epsilon_lower_if_gaussian: tradeoff::lower_bound_of_gaussian(
            canaries, guesses, right, delta, confidence,
        ),
        delta,
        confidence,
    }
}

/// How many guesses are made if nobody says: enough that chance does not matter, few enough to be
/// sure of them.
pub fn usual_guesses(canaries: usize) -> usize {
    (canaries / 10).max(canaries.min(20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::{Noise, Secret};
    use rayon::prelude::*;

    #[test]
    fn without_delta_the_bound_is_that_of_a_binomial() {
        // All of 100 guesses right: p^100 = 0.05 at p = 0.9705, so ε = ln(p/(1 − p)).
        let p = 0.05_f64.powf(0.01);
        let found = lower_bound(1000, 100, 100, 0.0, 0.95);
        assert!((found - (p / (1.0 - p)).ln()).abs() < 1e-6, "{found}");
        assert_eq!(lower_bound(1000, 100, 50, 0.0, 0.95), 0.0);
        assert!(lower_bound(1000, 100, 100, 1e-5, 0.95) < found);
    }

    /// Coins and scores of a mechanism that adds normal noise to each coin on its own: μ is the
    /// distance of the two cases.
    fn gaussian(trial: u64, canaries: usize, mu: f64) -> (Vec<f64>, Vec<bool>) {
        let noise = Noise::new(&Secret::from_seed(trial));
        let mut coins = vec![0.0_f32; canaries];
        noise.add(0, 0, 1.0, 1.0, &mut coins);
        let inside: Vec<bool> = coins.iter().map(|&x| x > 0.0).collect();
        let mut scores: Vec<f32> =
            inside.iter().map(|&inside| if inside { mu as f32 } else { 0.0 }).collect();
        noise.add(1, 0, 1.0, 1.0, &mut scores);
        (scores.iter().map(|&s| f64::from(s)).collect(), inside)
    }

    #[test]
    fn the_bounds_are_valid_and_within_a_factor_of_two_of_a_known_epsilon() {
        let (canaries, delta) = (10_000, 1e-5);
        for epsilon in [1.0, 4.0] {
            let mu = undertone_accounting::gaussian::largest_mu(epsilon, delta).unwrap();
            let one = |trial: u64| {
                let (scores, inside) = gaussian(trial, canaries, mu);
                let found = audit(&scores, &inside, usual_guesses(canaries), delta, 0.95);
                (found.epsilon_lower, found.epsilon_lower_if_gaussian)
            };
            let (mut free, mut of_gaussian): (Vec<f64>, Vec<f64>) =
                (0..100_u64).into_par_iter().map(one).unzip();
            for (name, bounds, share) in
                [("any", &mut free, 0.4), ("Gaussian", &mut of_gaussian, 0.5)]
            {
                bounds.sort_by(f64::total_cmp);
                println!(
                    "ε = {epsilon}, {name}: bounds {:.3} … {:.3}, median {:.3}",
                    bounds[0], bounds[99], bounds[50]
                );
                let above = bounds.iter().filter(|&&bound| bound > epsilon).count();
                assert!(above <= 5, "ε = {epsilon}, {name}: {above} of 100 bounds are above it");
                assert!(
                    bounds[50] >= share * epsilon,
                    "ε = {epsilon}, {name}: median {}",
                    bounds[50]
                );
            }
        }
    }
}
