//! Lower bound on ε from one training run, using the whole trade-off curve (f-DP) of the training
//! algorithm.
//!
//! # What is proved
//!
//! As in [`one_run`](super::one_run), there are m coin flips x and r guesses based on the release
//! M(x), of which W are correct. Let f̄(t) be the largest true-positive rate that any test of one
//! coin can have at a false-positive rate of t; it is concave and increasing. For c ≥ 1, let Sᵢ(x)
//! be the set of releases for which coin i is guessed correctly and W ≥ c. With coin i flipped, the
//! same release is one for which coin i is guessed incorrectly and W ≥ c − 1. So, with pⱼ = P(W =
//! j), averaging P(M(x) ∈ Sᵢ(x)) ≤ f̄(P(M(x flipped at i) ∈ Sᵢ(x))) over x and i gives, by Jensen's
//! inequality,
//!
//! ```text
//! A(c)/m ≤ f̄(B(c − 1)/m),    A(c) = Σ_{j ≥ c} j pⱼ,    B(c) = Σ_{j ≥ c} (r − j) pⱼ.
//! ```
//!
//! Suppose P(W ≥ v) ≥ β. The distribution of W with the least total mass that satisfies the
//! inequalities for c = v, v − 1, …, 1 has mass β at v and, at each c − 1, exactly the mass that
//! the inequality at c requires. No distribution has less: write T(c) = P(W ≥ c), and mark the
//! quantities of the least distribution with a star. If T(i) ≥ T*(i) for i ≥ c and A(c) ≥ A*(c),
//! then wherever mass is needed at c − 1, B(c − 1) ≥ B*(c − 1), since f̄ is increasing. Now
//! (r − c + 1) A(c − 1) = (c − 1) B(c − 1) + r Σ_{i ≥ c} T(i), whatever the mass at c − 1 is, so
//! A(c − 1) ≥ A*(c − 1), and T = (A + B)/r shows T(c − 1) ≥ T*(c − 1); where no mass is needed,
//! both are immediate. If the least distribution has a total mass above 1, no distribution exists,
//! and so P(W ≥ v) < β.
//!
//! For every curve, there is a fixed value such that the test rejects for all v from that value on.
//! Of two valid tests with the same r, rejecting when either does is therefore equivalent to one of
//! the two, and just as valid: no correction for multiple testing is needed.

use super::statistics::largest;
use undertone_accounting::{gaussian, normal_quantile, normal_tail};

/// A trade-off curve: the smallest false-positive rate of any test of one coin, at a given
/// true-positive rate.
pub trait Curve {
    /// The smallest t with f̄(t) ≥ `true_positives`.
    fn least_false_positives(&self, true_positives: f64) -> f64;
}

/// Trade-off curve of the Gaussian mechanism with sensitivity μ times its noise std (μ-GDP).
pub struct Gaussian(pub f64);

impl Curve for Gaussian {
    fn least_false_positives(&self, true_positives: f64) -> f64 {
        let z = match true_positives {
            t if t <= 0.0 => return 0.0,
            t if t >= 1.0 => return 1.0,
            t if t <= 0.5 => normal_quantile(t),
            t => -normal_quantile(1.0 - t),
        };
        normal_tail(z + self.0)
    }
}

/// Trade-off curve of a mechanism that is (ε, δ)-DP for each of these pairs.
pub struct Promises<'a>(pub &'a [(f64, f64)]);

impl Curve for Promises<'_> {
    fn least_false_positives(&self, true_positives: f64) -> f64 {
        let of = |&(epsilon, delta): &(f64, f64)| {
            let first = (true_positives - delta) * (-epsilon).exp();
            first.max(1.0 - delta - epsilon.exp() * (1.0 - true_positives))
        };
        self.0.iter().map(of).fold(0.0, f64::max)
    }
}

/// Whether `right` or more correct guesses have a probability below `significance` for every
/// mechanism with this trade-off curve.
pub fn refuted(
    curve: &impl Curve,
    canaries: u64,
    guesses: u64,
    right: u64,
    significance: f64,
) -> bool {
    if right == 0 || canaries == 0 {
        return false;
    }
    let (m, r) = (canaries as f64, guesses as f64);
    let mut total = significance;
    let (mut hits, mut misses) =
        (right as f64 * significance, (guesses - right) as f64 * significance);
    for c in (1..=right).rev() {
        // Number of incorrect guesses if W = c − 1.
        let wrong = r - c as f64 + 1.0;
        let needed = m * curve.least_false_positives((hits / m).min(1.0));
        let mass = ((needed - misses) / wrong).max(0.0);
        total += mass;
        if total > 1.0 {
            return true;
        }
        hits += (c - 1) as f64 * mass;
        misses += wrong * mass;
    }
    false
}

/// Lower bound on ε at δ, for any training algorithm.
pub fn lower_bound(canaries: u64, guesses: u64, right: u64, delta: f64, confidence: f64) -> f64 {
    largest(|epsilon| {
        refuted(&Promises(&[(epsilon, delta)]), canaries, guesses, right, 1.0 - confidence)
    })
}

/// Lower bound on ε at δ, if the trade-off curve is that of some Gaussian mechanism.
pub fn lower_bound_of_gaussian(
    canaries: u64,
    guesses: u64,
    right: u64,
    delta: f64,
    confidence: f64,
) -> f64 {
    let mu = largest(|mu| refuted(&Gaussian(mu), canaries, guesses, right, 1.0 - confidence));
    if mu > 0.0 { gaussian::epsilon(mu, delta).lower.max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_the_definitions() {
        // For a Gaussian, the tightest of its (ε, δ) pairs; for one pair, the two lines.
        let mu = 1.3;
        let pairs: Vec<(f64, f64)> = (0..4000)
            .map(|i| f64::from(i) * 2e-3)
            .map(|e| (e, gaussian::delta(mu, e).estimate))
            .collect();
        for t in [0.001, 0.1, 0.5, 0.9, 0.999] {
            let (exact, by_pairs) =
                (Gaussian(mu).least_false_positives(t), Promises(&pairs).least_false_positives(t));
            assert!(
                (exact - by_pairs).abs() < 1e-6 && by_pairs <= exact + 1e-12,
                "{t}: {exact} {by_pairs}"
            );
        }
        assert!((Promises(&[(2_f64.ln(), 0.1)]).least_false_positives(0.5) - 0.2).abs() < 1e-12);
        assert!((Promises(&[(2_f64.ln(), 0.1)]).least_false_positives(0.9) - 0.7).abs() < 1e-12);
    }

    #[test]
    fn possible_outcomes_are_not_rejected() {
        // Under randomized response, each coin is guessed correctly with probability e^ε/(1 + e^ε),
        // the maximum that ε allows.
        let (m, p) = (400_u64, 1.0 / (1.0 + (-1.0_f64).exp()));
        for right in 0..=m {
            let tail = super::super::statistics::at_least(m, right, p);
            if tail >= 0.05 {
                assert!(!refuted(&Promises(&[(1.0, 0.0)]), m, m, right, 0.05), "{right}: {tail}");
            }
        }
        assert!(refuted(&Promises(&[(1.0, 0.0)]), m, m, m, 0.05));
        assert!(!refuted(&Gaussian(0.1), m, 10, 0, 0.05));
    }
}
