//! A lower bound on ε from one training run (Steinke, Nasr and Jagielski, 2023).
//!
//! # What is proved
//!
//! Each of m canaries is included in the training data or left out by an independent fair coin
//! flip. The auditor sees the release, guesses the coin flips of r of the canaries (chosen based on
//! the release), and is right v times. If training is (ε, δ)-differentially private for adding or
//! removing one example, then v is essentially stochastically dominated by a binomial variable with
//! r trials and success probability p = e^ε/(1 + e^ε): with F(k) = P(Bin(r, p) ≥ k),
//!
//! ```text
//! P(v ≥ k) ≤ F(k) + 2mδ · max_{1 ≤ i ≤ k} (F(k − i) − F(k))/i.
//! ```
//!
//! So an ε for which the right side at the observed v is below 1 − confidence is rejected, and the
//! largest rejected ε is a lower bound. The number of guesses must be fixed before looking at the
//! scores.

use super::statistics::{at_least, binomial, largest};
use super::tradeoff;
pub use undertone_run::audit::OneRun;

/// Upper bound on the probability of at least `right` correct guesses under (ε, δ)-DP.
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

/// Lower bound on ε: the largest rejected ε; 0 if none is rejected.
pub fn lower_bound(canaries: u64, guesses: u64, right: u64, delta: f64, confidence: f64) -> f64 {
    largest(|epsilon| p_value(canaries, guesses, right, epsilon, delta) < 1.0 - confidence)
}

/// Guesses "in" for the highest scores and "out" for the lowest, `guesses` in total, and bounds ε.
/// `inside` holds the coin flips: whether each canary was in the training data.
pub fn audit(
    scores: &[f64],
    inside: &[bool],
    guesses: usize,
    delta: f64,
    confidence: f64,
) -> OneRun {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let clean = |i: usize| if scores[i].is_nan() { 0.0 } else { scores[i] };
    // Ties are broken by index, which is independent of the coin flips.
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
        // Both increase with the number of correct guesses, so the larger one is as valid as
        // either: see `tradeoff`.
        epsilon_lower: by_tails.max(by_curve),
        epsilon_lower_if_gaussian: tradeoff::lower_bound_of_gaussian(
            canaries, guesses, right, delta, confidence,
        ),
        delta,
        confidence,
    }
}

/// Default number of guesses: a tenth of the canaries, but at least 20.
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
        // All of 100 guesses correct: p^100 = 0.05 at p = 0.9705, so ε = ln(p/(1 − p)).
        let p = 0.05_f64.powf(0.01);
        let bound = lower_bound(1000, 100, 100, 0.0, 0.95);
        assert!((bound - (p / (1.0 - p)).ln()).abs() < 1e-6, "{bound}");
        assert_eq!(lower_bound(1000, 100, 50, 0.0, 0.95), 0.0);
        assert!(lower_bound(1000, 100, 100, 1e-5, 0.95) < bound);
    }

    /// Coin flips and scores of a mechanism that adds standard normal noise to μ times each coin.
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
            let bounds_of = |trial: u64| {
                let (scores, inside) = gaussian(trial, canaries, mu);
                let result = audit(&scores, &inside, usual_guesses(canaries), delta, 0.95);
                (result.epsilon_lower, result.epsilon_lower_if_gaussian)
            };
            let (mut free, mut of_gaussian): (Vec<f64>, Vec<f64>) =
                (0..100_u64).into_par_iter().map(bounds_of).unzip();
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
