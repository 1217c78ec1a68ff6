//! How many guesses can be right, given the whole trade-off curve of a training.
//!
//! # What is proved
//!
//! As in [`one_run`](super::one_run): m coins x, r guesses in view of the release M(x), of which W
//! are right. Let f̄(t) be the largest true-positive rate that any test of one coin can have at a
//! false-positive rate of t; it is concave and grows. For c ≥ 1 let Sᵢ(x) be the releases in view
//! of which coin i is guessed, rightly, and W ≥ c. With coin i turned over, the same release is one
//! in view of which coin i is guessed wrongly and W ≥ c − 1. So, with pⱼ = P(W = j), averaging
//! P(M(x) ∈ Sᵢ(x)) ≤ f̄(P(M(x turned at i) ∈ Sᵢ(x))) over coins and places, by Jensen's inequality,
//!
//! ```text
//! A(c)/m ≤ f̄(B(c − 1)/m),    A(c) = Σ_{j ≥ c} j pⱼ,    B(c) = Σ_{j ≥ c} (r − j) pⱼ.
//! ```
//!
//! Suppose P(W ≥ v) ≥ β. The least that the inequalities for c = v, v − 1, …, 1 ask for is found by
//! putting β at v and at each c − 1 just the mass that the inequality at c needs. No distribution
//! has less: write T(c) = P(W ≥ c), and starred letters for those of the least one. If T(i) ≥ T*(i)
//! for i ≥ c and A(c) ≥ A*(c), then where mass is needed at c − 1, B(c − 1) ≥ B*(c − 1), since f̄
//! grows. Now (r − c + 1) A(c − 1) = (c − 1) B(c − 1) + r Σ_{i ≥ c} T(i), whatever the mass at c −
//! 1 is, so A(c − 1) ≥ A*(c − 1), and T = (A + B)/r shows T(c − 1) ≥ T*(c − 1); where none is
//! needed, both are plain. If the least distribution has more than 1 in all, there is none, and so
//! P(W ≥ v) < β.
//!
//! For every curve the test refutes from a fixed v on. Of two valid tests with the same r, the one
//! that refutes where either does is therefore one of the two, and as valid as they are: no
//! correction for several tests is needed.

use super::statistics::largest;
use undertone_accounting::{gaussian, normal_quantile, normal_tail};

/// Bounds of what a training can give away: the least false-positive rate at which a test of one
/// coin can have a true-positive rate.
pub trait Curve {
    /// The least t with f̄(t) ≥ `true_positives`.
    fn least_false_positives(&self, true_positives: f64) -> f64;
}

/// The curve of the Gaussian mechanism whose two cases are μ deviations apart.
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

/// The curve of a training that is (ε, δ)-private for each of these pairs.
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

/// Whether so many right guesses, or more, have a probability below `significance` for every
/// training with this curve.
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
        let room = r - c as f64 + 1.0;
        let needed = m * curve.least_false_positives((hits / m).min(1.0));
        let mass = ((needed - misses) / room).max(0.0);
        total += mass;
        if total > 1.0 {
            return true;
        }
        hits += (c - 1) as f64 * mass;
        misses += room * mass;
    }
    false
}

/// ε is at least this at δ, whatever the training is.
pub fn lower_bound(canaries: u64, guesses: u64, right: u64, delta: f64, confidence: f64) -> f64 {
    largest(|epsilon| {
        refuted(&Promises(&[(epsilon, delta)]), canaries, guesses, right, 1.0 - confidence)
    })
}

/// ε is at least this at δ, if the training's curve is that of some Gaussian mechanism.
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
        // Of a Gaussian, the tightest of its (ε, δ) pairs; of one pair, the two lines.
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
    fn what_is_possible_is_not_refuted() {
        // Guesses of coins that went through randomised response are right with probability e^ε/(1
        // + e^ε) each: the most that ε allows.
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
