//! δ(ε) from a tilted distribution of the total loss.

use super::convolve::{Side, Window};
use super::plan::Plan;
use crate::normal::UNIT;
use crate::sum::not_negative;

/// A bound on the hockey-stick curve of a discrete pair, tight near one tilt.
///
/// Let w be the masses of the total loss, A the mass at or above a grid loss and δ the divergence
/// there. The recursion
///
/// ```text
/// A_i = w_i + A_{i+1}        δ_i = e^{−h} δ_{i+1} + (1 − e^{−h}) A_{i+1}
/// ```
///
/// only adds, so there is no cancellation. Both are stored times e^{θ·loss}, so nothing underflows
/// or overflows. Between grid losses δ is exactly linear in e^ε.
pub struct Tail {
    /// The loss of the first point.
    start: f64,
    mesh: f64,
    tilt: f64,
    /// A_i and δ_i times e^{θ·loss_i}, divided by the normalizer.
    at_or_above: Vec<f64>,
    divergence: Vec<f64>,
    /// Bound on all errors of A_i together, in the same scale: added for an upper bound, subtracted
    /// for a lower one.
    at_or_above_error: f64,
    /// Upper bound on the tilted mass below the window.
    outside_below: f64,
    divergence_error: f64,
    side: Side,
    log_norm: f64,
    log_norm_error: f64,
    infinite: f64,
    /// Bound on the rounding error of every loss.
    loss_error: f64,
    /// The curve of other outcomes, which is added.
    others: Option<Box<Tail>>,
}

impl Tail {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        weights: Vec<f64>,
        plan: &Plan,
        side: Side,
        log_norm: f64,
        log_norm_error: f64,
        point_error: f64,
        window: &Window,
        infinite: f64,
    ) -> Tail {
        let (mesh, tilt) = (plan.mesh, plan.tilt);
        let n = weights.len();
        let decay = (-tilt * mesh).exp();
        let step = (-mesh).exp();
        let gain = -(-mesh).exp_m1();
        let mut at_or_above = weights;
        let mut divergence = vec![0.0; n];
        let (mut a, mut d) = (0.0, 0.0);
        for i in (0..n).rev() {
            d = decay * (step * d + gain * a);
            a = at_or_above[i] + decay * a;
            divergence[i] = d;
            at_or_above[i] = a;
        }
        // Errors of the points enter δ_i with weights e^{−θhm}·min(1, hm), m = 1, 2, …
        // 1 − e^{−θh} without cancellation: the tilt may be as flat as 1e-7.
        let falling = -(-tilt * mesh).exp_m1();
        let points = n as f64;
        let above_sum = (1.0 / falling).min(points);
        let divergence_sum = (mesh * decay / (falling * falling)).min(above_sum);
        let outside = match side {
            // Mass above the window is missing. Mass from below it wraps around to higher losses,
            // which is safe.
            Side::Upper => window.outside_above,
            Side::Lower => window.outside_above + window.outside_below,
        };
        // The recursion rounds four times per step, relative to its sum; a mass may be as many
        // steps above as there are points.
        let recursion = 1.0 + 8.0 * UNIT * points;
        Tail {
            start: window.offset + window.first as f64 * mesh,
            mesh,
            tilt,
            at_or_above,
            divergence,
            outside_below: window.outside_below,
            at_or_above_error: (point_error * above_sum + outside) * recursion,
            divergence_error: (point_error * divergence_sum + outside) * recursion,
            side,
            log_norm,
            log_norm_error: log_norm_error + 16.0 * UNIT * points,
            infinite,
            loss_error: 8.0 * UNIT * (1.0 + window.offset_size + n as f64 * mesh),
            others: None,
        }
    }

    /// The joint curve of these and other outcomes, with `infinite` more mass where Q has none.
    pub fn plus(mut self, others: Tail, infinite: f64) -> Tail {
        self.infinite += infinite;
        self.others = Some(Box::new(others));
        self
    }

    fn loss(&self, i: usize) -> f64 {
        self.start + i as f64 * self.mesh
    }

    /// e^{ln scale} · (value ± error), on the safe side.
    fn bounded(&self, value: f64, error: f64, loss: f64) -> f64 {
        let exponent = self.log_norm - self.tilt * loss;
        let sum = match self.side {
            Side::Upper => not_negative(value + error),
            Side::Lower => (value - error).max(0.0),
        };
        let log_sum = if sum > 0.0 { sum.ln() } else { 0.0 };
        // Roundings of the three terms, and of the loss itself times the tilt.
        let size = 1.0 + (self.tilt * loss).abs() + self.log_norm.abs() + log_sum.abs();
        let slack = self.log_norm_error + 8.0 * UNIT * size + self.tilt * self.loss_error;
        match self.side {
            Side::Upper => {
                // A NaN must not count as 0 here.
                let scaled = match sum == 0.0 {
                    true => 0.0,
                    false => (sum.ln() + exponent + slack).exp(),
                };
                // `min` turns a NaN into 1, the worst δ.
                (scaled + self.infinite).min(1.0)
            }
            Side::Lower => {
                if sum > 0.0 {
                    (log_sum + exponent - slack).exp().min(1.0)
                } else {
                    0.0
                }
            }
        }
    }

    fn delta_at(&self, i: usize) -> f64 {
        self.bounded(self.divergence[i], self.divergence_error, self.loss(i))
    }

    /// The bound on δ(ε).
    pub fn delta(&self, epsilon: f64) -> f64 {
        let others = self.others.as_ref().map_or(0.0, |others| others.delta(epsilon));
        (self.own_delta(epsilon) + others).min(1.0)
    }

    fn own_delta(&self, epsilon: f64) -> f64 {
        let last = self.divergence.len() - 1;
        let position = (epsilon - self.start) / self.mesh;
        if position >= last as f64 {
            return match self.side {
                Side::Upper => self.delta_at(last),
                Side::Lower => 0.0,
            };
        }
        if position <= 0.0 {
            // δ(ε) = e^{ε−ℓ}δ(ℓ) + (1 − e^{ε−ℓ})·A(ℓ) for the first loss ℓ of the window, in the
            // scale of ε. Losses between ε and the window, whose tilted mass is bounded, may count
            // in full.
            let below = self.start - epsilon;
            let share = (-below).exp();
            let value = (-self.tilt * below).exp()
                * (share * self.divergence[0] + (1.0 - share) * self.at_or_above[0]);
            let error = self.at_or_above_error + self.divergence_error + self.outside_below;
            return self.bounded(value, error, epsilon);
        }
        let i = position.floor() as usize;
        let share = ((epsilon - self.loss(i)).exp_m1() / self.mesh.exp_m1()).clamp(0.0, 1.0);
        (1.0 - share) * self.delta_at(i) + share * self.delta_at(i + 1)
    }

    /// The last loss of the window.
    pub fn end(&self) -> f64 {
        let end = self.loss(self.divergence.len() - 1);
        self.others.as_ref().map_or(end, |others| others.end().max(end))
    }

    /// Bound on the rounding error of every loss.
    pub fn loss_error(&self) -> f64 {
        self.others
            .as_ref()
            .map_or(self.loss_error, |others| others.loss_error().max(self.loss_error))
    }
}
