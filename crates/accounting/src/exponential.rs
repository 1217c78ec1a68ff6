//! The exponential mechanism: a choice y with probability ∝ e^{s(y)}, where s is a score.
//!
//! # Statement
//!
//! Let neighboring data have scores s and s', with a ≤ s'(y) − s(y) ≤ a + η for every y: the *range*
//! of the change is η. The privacy loss ln p(y)/p'(y) = s(y) − s'(y) + const then takes values in an
//! interval of length η. Write p for p' tilted by the loss L, and let K(t) = ln E_{p'}[e^{tL}]. Its
//! second derivative is the variance of L under a tilted distribution, at most η²/4 because L lies
//! in an interval of length η. With K(0) = K(1) = 0, for α > 1
//!
//! ```text
//! D_α(p‖p') = K(α)/(α − 1) ≤ α η²/8,
//! ```
//!
//! since K(t) − t (t − 1) η²/8 is concave and zero at 0 and 1, hence not positive beyond 1. (This is
//! the bound of η²/8 in concentrated DP by Cesar and Rogers, 2021.) The loss also is at most η,
//! because it is at most 0 somewhere: D_α ≤ η. Divergences add up under adaptive composition, and
//! both bounds are symmetric in p and p'.

/// The Rényi divergence of order `alpha` of one choice whose scores change by this range.
pub fn divergence(range: f64, alpha: f64) -> f64 {
    // Rounded up.
    (alpha * range * range / 8.0).min(range) * (1.0 + 1e-14)
}

#[cfg(test)]
mod tests {
    use super::divergence;
    use crate::{Accountant, Adjacency, Composition, Event, epsilon};

    /// Logarithms of probabilities ∝ e^score.
    fn log_softmax(scores: &[f64]) -> Vec<f64> {
        let total: f64 = scores.iter().map(|score| score.exp()).sum();
        scores.iter().map(|score| score - total.ln()).collect()
    }

    /// The divergence of order alpha of two distributions.
    fn exact(p: &[f64], q: &[f64], alpha: f64) -> f64 {
        let exponents: Vec<f64> =
            p.iter().zip(q).map(|(p, q)| alpha * p + (1.0 - alpha) * q).collect();
        let largest = exponents.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = exponents.iter().map(|exponent| (exponent - largest).exp()).sum();
        (largest + sum.ln()) / (alpha - 1.0)
    }

    /// A deterministic sequence of numbers in [0, 1).
    fn numbers() -> impl Iterator<Item = f64> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        })
    }

    /// No scores and no change of this range exceed the bound, and two choices with probability 1/2
    /// come close to it.
    #[test]
    fn the_bound_holds_and_is_nearly_attained() {
        let mut numbers = numbers();
        let mut next = || numbers.next().unwrap();
        for range in [0.01, 0.3, 1.0, 3.0, 20.0] {
            for alpha in [1.1, 2.0, 7.5, 40.0] {
                let bound = divergence(range, alpha);
                for size in [2, 3, 50] {
                    for _ in 0..50 {
                        let scores: Vec<f64> = (0..size).map(|_| 6.0 * next()).collect();
                        let all = next() < 0.5;
                        let change =
                            |extreme: f64, any: f64| if all { extreme.round() } else { any };
                        let moved: Vec<f64> = scores
                            .iter()
                            .map(|score| score + range * change(next(), next()) - 0.3 * range)
                            .collect();
                        let (p, q) = (log_softmax(&scores), log_softmax(&moved));
                        assert!(exact(&p, &q, alpha) <= bound, "{range} {alpha} {size}");
                        assert!(exact(&q, &p, alpha) <= bound, "{range} {alpha} {size}");
                    }
                }
            }
        }
        let (p, q) = (log_softmax(&[0.0, 0.0]), log_softmax(&[0.01, 0.0]));
        let (exact, bound) = (exact(&p, &q, 2.0), divergence(0.01, 2.0));
        assert!(exact > 0.999 * bound, "{exact} {bound}");
    }

    /// A hundred adaptive choices cost less than a hundred times the cost of one, and are composed
    /// with Gaussian releases.
    #[test]
    fn choices_compose() {
        let choices = |range: f64, count: u64| {
            Composition::new(Adjacency::AddRemove).with(Event::Exponential { range }, count)
        };
        let at = |composition: &Composition| {
            let answer = epsilon(composition, 1e-6, Accountant::Auto).unwrap();
            assert_eq!(answer.accountant, Accountant::Rdp);
            answer.epsilon.upper
        };
        let hundred = at(&choices(0.1, 100));
        assert!((1.0..6.0).contains(&hundred), "{hundred}");
        assert!(at(&choices(1.0, 1)) <= hundred.min(1.1), "also bounded by its range");
        // Together, they cost as much as a Gaussian mechanism with noise multiplier 2.
        let gaussian = Event::Gaussian { noise_multiplier: 2.0, sensitivity: 1.0 };
        let both = at(&choices(0.1, 100).with(gaussian, 1));
        let twice = Composition::new(Adjacency::AddRemove).with(gaussian, 2);
        let twice = epsilon(&twice, 1e-6, Accountant::Rdp).unwrap().epsilon.upper;
        assert!((both - twice).abs() < 1e-6 * twice, "{both} {twice}");
        assert!(epsilon(&choices(0.1, 1), 1e-6, Accountant::Prv).is_err());
        assert!(
            Event::Exponential { range: 0.2 }.no_worse_than(&Event::Exponential { range: 0.3 })
        );
        assert!(Event::Exponential { range: f64::NAN }.validate().is_err());
    }
}
