//! Entries that are released only above a threshold, as in DP set union (Gopi et al. 2020).
//!
//! # Statement
//!
//! Consider data sets D and D' = D + x. A mechanism adds independent noise to the value of each
//! entry that occurs in the data, and releases the entries whose noisy value exceeds a threshold.
//! Suppose that the probability of releasing any entry that only x has is at most δ_T. Then the
//! output consists of two independent parts: the released entries that D has, a post-processing of
//! noise on the values of a fixed list of entries, which is an event of its own; and the set B of
//! released entries that only x has. On D, B is empty; on D' it is empty with probability at least
//! 1 − δ_T. So B has the privacy loss −ln(1 − p) if x is absent; if x is present, the loss is ∞
//! with probability p ≤ δ_T, and ln(1 − p) otherwise. For the composition of k such events with
//! other events whose curve is δ_o, let 1 − q = 1 − Π (1 − δ_i). Then
//!
//! ```text
//! max(δ_o(ε), 1 − q)  ≤  δ(ε)  ≤  (1 − q) + δ_o(ε + ln q).
//! ```
//!
//! The upper bound holds in both directions, and also if x is replaced: then either data set may
//! have entries of its own, with losses of at most −ln(1 − δ_T) in absolute value, or ∞ with
//! probability δ_T. The lower bound is that of either part alone, for p = δ_T.

use crate::accountant::{Answer, check_delta};
use crate::{Bounds, Composition, Error, Event, Result};

/// A composition without its thresholds.
pub(crate) struct Split {
    pub others: Composition,
    /// 1 − q, rounded up.
    mass: f64,
}

/// Separates the thresholds of a composition from everything else; `None` without a threshold.
pub(crate) fn split(composition: &Composition) -> Option<Split> {
    let mut others = Composition::new(composition.adjacency);
    let mut log_q = 0.0;
    for part in composition.parts() {
        match part.event {
            Event::Threshold { delta } => log_q += part.count as f64 * (-delta).ln_1p(),
            event => others.push(event, part.count),
        }
    }
    // A few roundings for each part.
    let slack = 1.0 + 1e-15 * (8 + composition.parts().len()) as f64;
    (log_q < 0.0).then(|| Split { others, mass: -(log_q * slack).exp_m1() * slack })
}

impl Split {
    /// −ln q, rounded up.
    fn shift(&self) -> f64 {
        -(-self.mass).ln_1p() * (1.0 + 1e-15)
    }

    /// ε at δ, from the ε of the other events at the δ that the thresholds leave.
    pub fn epsilon(
        &self,
        delta: f64,
        of_others: impl Fn(&Composition, f64) -> Result<Answer>,
    ) -> Result<Answer> {
        let left = (delta - self.mass) * (1.0 - 1e-15);
        if left <= 0.0 || check_delta(left).is_err() {
            let rule = format!("above {:e}, the δ of the thresholds alone", self.mass);
            return Err(Error::invalid("δ", delta, rule));
        }
        let (most, least) = (of_others(&self.others, left)?, of_others(&self.others, delta)?);
        let epsilon = Bounds {
            lower: least.epsilon.lower,
            estimate: most.epsilon.estimate.max(least.epsilon.lower),
            upper: (most.epsilon.upper + self.shift()) * (1.0 + 1e-15),
        };
        Ok(Answer { epsilon, delta: Bounds::exact(delta), ..most })
    }

    /// δ at ε, from that of the other events.
    pub fn delta(
        &self,
        epsilon: f64,
        of_others: impl Fn(&Composition, f64) -> Result<Bounds>,
    ) -> Result<Bounds> {
        let least = of_others(&self.others, epsilon)?;
        let smaller = (epsilon - self.shift()).max(0.0);
        // Below −ln q the curve of the others begins at ε = 0, and a likelihood ratio of at most
        // 1/q adds no more than 1/q − 1.
        let rest = if epsilon < self.shift() { self.shift().exp_m1() } else { 0.0 };
        let most = of_others(&self.others, smaller)?;
        let upper = ((most.upper + self.mass + rest) * (1.0 + 1e-15)).min(1.0);
        let lower = least.lower;
        Ok(Bounds { lower, estimate: (most.estimate + self.mass).clamp(lower, upper), upper })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Accountant, Adjacency, Composition, Event, delta, epsilon};

    const GAUSSIAN: Event = Event::Gaussian { noise_multiplier: 2.0, sensitivity: 1.0 };

    fn both(threshold: f64, count: u64) -> Composition {
        let both = Composition::new(Adjacency::AddRemove).with(GAUSSIAN, 1);
        both.with(Event::Threshold { delta: threshold }, count)
    }

    /// Numerical integration of the exact pair: Gaussian values, and a mark with probability p if
    /// the unit is present.
    fn exact(p: f64, epsilon: f64) -> (f64, f64) {
        let (mu, step, keep) = (0.5_f64, 1e-4_f64, 1.0 - p);
        let (mut present, mut absent) = (p, 0.0);
        let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        for i in -120_000..120_000 {
            let x = f64::from(i) * step;
            let (with, without) = (keep * density(x - mu), density(x));
            present += step * (with - epsilon.exp() * without).max(0.0);
            absent += step * (without - epsilon.exp() * with).max(0.0);
        }
        (present, absent)
    }

    #[test]
    fn the_bounds_enclose_the_exact_pair() {
        for p in [1e-3, 0.05, 0.4] {
            for e in [0.01, 0.2, 1.0, 2.0] {
                let bounds = delta(&both(p, 1), e, Accountant::Auto).unwrap().delta;
                let (present, absent) = exact(p, e);
                let worst = present.max(absent);
                assert!(bounds.lower <= worst + 1e-9, "{p} {e}: {bounds:?} {worst}");
                assert!(bounds.upper >= worst - 1e-9, "{p} {e}: {bounds:?} {worst}");
                assert!(bounds.upper <= worst + 2.0 * p + 1e-9, "{p} {e}: {bounds:?} {worst}");
            }
        }
    }

    #[test]
    fn thresholds_add_their_share_of_delta() {
        let alone = Composition::new(Adjacency::AddRemove).with(GAUSSIAN, 1);
        let of = |composition: &Composition, at: f64| {
            epsilon(composition, at, Accountant::Auto).unwrap().epsilon
        };
        let with = of(&both(1e-7, 5), 1e-6);
        assert!(with.upper >= of(&alone, 5e-7).upper && with.upper < of(&alone, 4.9e-7).upper);
        assert!(with.lower <= of(&alone, 1e-6).upper);
        let error = epsilon(&both(1e-6, 1), 1e-6, Accountant::Auto).unwrap_err().to_string();
        assert!(error.contains("the δ of the thresholds alone"), "{error}");
        // ε and δ are inverse to each other.
        let spent = delta(&both(1e-7, 5), with.upper, Accountant::Auto).unwrap().delta;
        assert!(spent.upper <= 1e-6 * (1.0 + 1e-6) && spent.upper > 0.99e-6, "{spent:?}");
        let only = Composition::new(Adjacency::AddRemove).with(Event::Threshold { delta: 1e-7 }, 2);
        assert!(of(&only, 1e-6).upper < 1e-6);
    }
}
