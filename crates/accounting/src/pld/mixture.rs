//! A mixture of Gaussians with binomial weights: the dominating pair of a user whose examples are
//! sampled one by one (PROOFS.md, section 2.1).

use crate::normal::{UNIT, upper_quantile, upper_tail};

/// P = Σᵢ wᵢ N(i·s, 1) against Q = N(0, 1), where w is the binomial distribution of `examples`
/// draws with probability q.
#[derive(Debug, Clone)]
pub struct Mixture {
    examples: u64,
    sampling_rate: f64,
    shift: f64,
    /// w₀, w₁, … without the last ones, which are negligible together.
    weights: Vec<f64>,
    log_weights: Vec<f64>,
    /// 1 − w₀, without cancellation.
    sampled: f64,
}

/// Components with less weight than this together are counted as an error, not one by one.
const NEGLIGIBLE: f64 = 1e-50;

/// Losses beyond this would overflow in e^loss, or underflow. They count as infinite.
const LARGEST_LOSS: f64 = 600.0;

impl Mixture {
    /// The pair of a user with at most `examples` examples, at a distance `shift` between
    /// neighboring components.
    pub fn new(examples: u64, sampling_rate: f64, shift: f64) -> Mixture {
        // A draw at a time: all terms are positive, so each draw adds at most three roundings.
        let mut weights = vec![1.0];
        for _ in 0..examples {
            weights.push(0.0);
            for i in (1..weights.len()).rev() {
                weights[i] = weights[i] * (1.0 - sampling_rate) + weights[i - 1] * sampling_rate;
            }
            weights[0] *= 1.0 - sampling_rate;
        }
        let mut beyond = 0.0;
        while weights.len() > 2 && beyond + weights[weights.len() - 1] < NEGLIGIBLE {
            beyond += weights.pop().unwrap_or_default();
        }
        let log_weights = weights.iter().map(|w| w.ln()).collect();
        let sampled = -(examples as f64 * (-sampling_rate).ln_1p()).exp_m1();
        Mixture { examples, sampling_rate, shift, weights, log_weights, sampled }
    }

    /// Number of components that are not negligible.
    pub fn components(&self) -> usize {
        self.weights.len()
    }

    /// Mean of a component.
    pub fn mean(&self, component: usize) -> f64 {
        component as f64 * self.shift
    }

    /// Distance from the first component to the last one that is not negligible.
    pub fn reach(&self) -> f64 {
        self.mean(self.weights.len() - 1)
    }

    /// Weight of a component in P, up to `weight_error`.
    pub fn weight(&self, component: usize) -> f64 {
        self.weights[component]
    }

    /// A bound on the rounding error of a weight.
    fn weight_error(&self, component: usize) -> f64 {
        4.0 * self.examples as f64 * UNIT * self.weights[component] + f64::MIN_POSITIVE
    }

    /// A bound on the weight of all components that are left out.
    pub fn left_out(&self) -> f64 {
        if self.weights.len() as u64 > self.examples { 0.0 } else { NEGLIGIBLE }
    }

    /// The largest loss of Q against P, which is that of no sampled example: −ln w₀.
    pub fn largest_absent_loss(&self) -> f64 {
        -(self.examples as f64) * (-self.sampling_rate).ln_1p()
    }

    /// ln of the likelihood ratio of component i against Q at the point z, which may be −∞.
    fn log_ratio(&self, component: usize, z: f64) -> f64 {
        if component == 0 {
            return 0.0;
        }
        let mean = self.mean(component);
        mean * (z - 0.5 * mean)
    }

    /// ln Σ wᵢ e^{log ratio} over the components from `first` on, and its slope.
    fn log_sum(&self, first: usize, z: f64) -> (f64, f64) {
        let term = |i: usize| self.log_weights[i] + self.log_ratio(i, z);
        let all = first..self.weights.len();
        let top = all.clone().map(term).fold(f64::NEG_INFINITY, f64::max);
        let (mut sum, mut slope) = (0.0, 0.0);
        for i in all {
            let share = (term(i) - top).exp();
            sum += share;
            slope += share * self.mean(i);
        }
        (top + sum.ln(), slope / sum)
    }

    /// The privacy loss ln dP/dQ at the point z.
    pub fn loss(&self, z: f64) -> f64 {
        let largest = (1..self.weights.len()).map(|i| self.log_ratio(i, z)).fold(0.0, f64::max);
        if largest < 30.0 {
            let excess: f64 = (1..self.weights.len())
                .map(|i| self.weights[i] * self.log_ratio(i, z).exp_m1())
                .sum();
            if excess > -0.5 {
                return excess.ln_1p();
            }
        }
        self.log_sum(0, z).0
    }

    /// e^loss − w₀, without cancellation where losses are small.
    fn above_first(&self, loss: f64) -> f64 {
        match loss < -0.5 {
            true => loss.exp() - self.weights[0],
            false => loss.exp_m1() + self.sampled,
        }
    }

    /// The point z where the loss crosses `loss`, or −∞ if every loss is above it.
    ///
    /// The logarithm of Σ wᵢ e^{log ratio}, i ≥ 1, is convex and increasing, and each of its terms
    /// alone gives a point beyond the crossing: from there Newton's method descends to it.
    pub fn threshold(&self, loss: f64) -> f64 {
        let rest = self.above_first(loss);
        if rest <= 0.0 {
            return f64::NEG_INFINITY;
        }
        let wanted = rest.ln();
        let alone = |i: usize| {
            let mean = self.mean(i);
            (wanted - self.log_weights[i]) / mean + 0.5 * mean
        };
        let mut z = (1..self.weights.len()).map(alone).fold(f64::INFINITY, f64::min);
        for _ in 0..100 {
            let (value, slope) = self.log_sum(1, z);
            let excess = value - wanted;
            z -= excess / slope;
            // The last step was from a point this close, so it is exact to rounding.
            if excess <= 1e-10 * (1.0 + wanted.abs()) {
                break;
            }
        }
        z
    }

    /// The weight of a component in P − e^loss·Q.
    pub fn excess_weight(&self, component: usize, loss: f64) -> f64 {
        match component {
            0 => -self.above_first(loss),
            _ => self.weights[component],
        }
    }

    /// A bound on the rounding error of [`Mixture::excess_weight`], where `loss` itself has one
    /// rounding.
    pub fn excess_weight_error(&self, component: usize, loss: f64) -> f64 {
        if component > 0 {
            return self.weight_error(component);
        }
        let e = loss.exp();
        match loss < -0.5 {
            true => (4.0 + 2.0 * loss.abs()) * e * UNIT + self.weight_error(0),
            false => {
                (4.0 * loss.exp_m1().abs() + 2.0 * loss.abs() * e + 16.0 * self.sampled) * UNIT
            }
        }
    }

    /// The interval above which P, and below which Q, has at most the mass `cut`, without losses
    /// that are too large for e^loss.
    pub fn support(&self, cut: f64) -> (f64, f64) {
        let above = |z: f64| -> f64 {
            (0..self.weights.len()).map(|i| self.weights[i] * upper_tail(z - self.mean(i))).sum()
        };
        let (mut low, mut high) = (0.0, self.reach() + 40.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if above(middle) > cut { low = middle } else { high = middle }
        }
        let low = -upper_quantile(cut.min(0.5));
        (low.max(self.threshold(-LARGEST_LOSS)), high.min(self.threshold(LARGEST_LOSS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixtures() -> impl Iterator<Item = Mixture> {
        let sizes = [2, 4, 16, 64, 256];
        sizes.into_iter().flat_map(|examples| {
            [1e-7, 1e-3, 0.1, 0.6, 0.999].into_iter().flat_map(move |sampling_rate| {
                let shifts = [1e-3, 0.2, 1.0, 20.0].into_iter();
                shifts.map(move |shift| Mixture::new(examples, sampling_rate, shift))
            })
        })
    }

    #[test]
    fn weights_are_binomial() {
        for mixture in mixtures() {
            let Mixture { examples, sampling_rate: q, .. } = mixture;
            let mut log_binomial = 0.0;
            for (i, w) in mixture.weights.iter().enumerate() {
                if i > 0 {
                    log_binomial += ((examples as f64 - i as f64 + 1.0) / i as f64).ln();
                }
                let rest = examples as f64 - i as f64;
                let expected = (log_binomial + i as f64 * q.ln() + rest * (-q).ln_1p()).exp();
                assert!((w - expected).abs() <= 1e-10 * expected + 1e-300, "{q} {i}: {w:e}");
            }
            let sum: f64 = mixture.weights.iter().sum();
            assert!((sum - 1.0).abs() < 1e-12, "{sum}");
        }
    }

    #[test]
    fn threshold_inverts_loss() {
        for mixture in mixtures() {
            let (low, high) = mixture.support(1e-12);
            for i in 0..=20 {
                let z = low + (high - low) * f64::from(i) / 20.0;
                let loss = mixture.loss(z);
                let at = mixture.threshold(loss);
                let back = mixture.loss(at);
                assert!(
                    (back - loss).abs() <= 1e-11 * (1.0 + loss.abs()),
                    "{mixture:?} z={z}: {loss} came back as {back} from {at}"
                );
            }
        }
    }

    /// The derivative of the loss is positive, and losses lie between both ends.
    #[test]
    fn losses_increase() {
        for mixture in mixtures() {
            let (low, high) = mixture.support(1e-12);
            let losses: Vec<f64> = (0..=200)
                .map(|i| mixture.loss(low + (high - low) * f64::from(i) / 200.0))
                .collect();
            let slack = |loss: f64| 1e-11 * (1.0 + loss.abs());
            assert!(losses.windows(2).all(|w| w[1] >= w[0] - slack(w[0])), "{mixture:?}");
            assert!(losses[0] >= -mixture.largest_absent_loss() - slack(losses[0]));
            assert!(losses[200] <= LARGEST_LOSS * (1.0 + 1e-9), "{mixture:?}");
        }
    }
}
