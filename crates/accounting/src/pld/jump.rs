//! Compositions in which one large loss is likelier than many small ones that add up to it.
//!
//! With a small sampling rate, the loss of one event has a tail heavier than any exponential. No
//! tilt suits it: a tilt steep enough to lift the result above the transform's rounding error lifts
//! the far end of the tail even higher. So each event is split at a threshold into its body and its
//! jump, and the composition by the number of jumps (PROOFS.md, section 5.3). No jump uses a steep
//! tilt, which the body alone allows. One jump needs no tilt, because its small probability is a
//! factor outside the transform. Two or more jumps are so improbable that a bound suffices.

use super::cells::Grid;
use super::convolve::{
    Power, Side, Tilted, Window, compose, infinite_mass, normalizer, sum_or_norm, transform_error,
    unrolled,
};
use super::masses::Masses;
use super::plan::Plan;
use super::sketch::Sketch;
use super::tail::Tail;
use crate::event::limits;
use crate::normal::UNIT;
use crate::sum::compensated_sum;
use crate::{Error, Result};
use realfft::{RealFftPlanner, RealToComplex, num_complex::Complex64};

/// Share of δ that two or more jumps may have.
const SHARE_OF_TWO: f64 = 1e-5;
/// Share of δ below which the body alone need not be accurate.
const SHARE_OF_BODY: f64 = 1e-6;

/// The split of events into body and jump, and the sketches to plan from.
pub struct Split {
    threshold: f64,
    bodies: Vec<Sketch>,
    log_floor: f64,
    log_delta: f64,
}

impl Split {
    /// The lowest threshold at which two jumps are improbable compared with `delta`, or `None` if
    /// all losses are negligible.
    pub fn at_delta(sketches: &[Sketch], delta: f64) -> Option<Split> {
        let most = (2.0 * SHARE_OF_TWO * delta).sqrt();
        let jumps = |threshold: f64| -> f64 {
            sketches.iter().filter(|s| s.on_grid).map(|s| s.count * s.mass_above(threshold)).sum()
        };
        let highest = sketches.iter().filter_map(|s| s.loss.last()).copied().fold(0.0, f64::max);
        let (mut low, mut high) = (1e-12_f64, highest);
        if high <= low {
            return None;
        }
        while high / low > 1.001 {
            let middle = (low * high).sqrt();
            if jumps(middle) > most { low = middle } else { high = middle }
        }
        let bodies = sketches.iter().map(|s| s.below(high)).collect();
        let (log_floor, log_delta) = ((SHARE_OF_BODY * delta).ln(), delta.ln());
        Some(Split { threshold: high, bodies, log_floor, log_delta })
    }

    /// A plan for the outcomes without jumps.
    pub fn plan(&self, epsilon: f64, tolerance: f64) -> Result<Plan> {
        Plan::reaching(&self.bodies, epsilon, self.log_floor, self.log_delta, tolerance)
    }

    /// Bounds the curve of the parts from one side.
    pub fn compose(
        &self,
        parts: &[(Masses, u64)],
        plan: &Plan,
        side: Side,
        most: f64,
    ) -> Result<Tail> {
        let (bodies, jumps): (Vec<_>, Vec<_>) =
            parts.iter().map(|(m, n)| self.split(m, *n)).unzip();
        let without = compose(&bodies, plan, side, most)?;
        let flat = Plan::at(&self.bodies, FLAT, plan.epsilon_guess, self.log_delta, plan.mesh)?;
        let with_one = compose_one_jump(&bodies, &jumps, &flat, side, most)?;
        let more = if side == Side::Upper {
            two_or_more(&bodies, &jumps) + infinite_mass(parts)
        } else {
            0.0
        };
        Ok(without.plus(with_one, more))
    }

    fn split(&self, masses: &Masses, count: u64) -> ((Masses, u64), Masses) {
        // Index 0 and its neighbors belong to the body, whatever the threshold.
        let above = |i: i64| i > 1 && masses.grid.loss(i) > self.threshold;
        let at = masses.index.partition_point(|&i| !above(i));
        let piece = |index: &[i64], mass: &[f64]| Masses {
            grid: masses.grid,
            index: index.to_vec(),
            mass: mass.to_vec(),
            infinite: 0.0,
        };
        let body = piece(&masses.index[..at], &masses.mass[..at]);
        ((body, count), piece(&masses.index[at..], &masses.mass[at..]))
    }
}

/// A tilt so small that it has practically no effect.
const FLAT: f64 = 1e-7;

/// Bounds the mass of all outcomes with two or more jumps: the remainder of Π(b + t·p)^k after its
/// linear term in t, at t = 1.
fn two_or_more(bodies: &[(Masses, u64)], jumps: &[Masses]) -> f64 {
    let (mut expected, mut log_growth) = (0.0, 0.0);
    for ((body, count), jump) in bodies.iter().zip(jumps) {
        let p = compensated_sum(&jump.mass);
        let whole = p + compensated_sum(&body.mass);
        expected += *count as f64 * p;
        log_growth += *count as f64 * whole.max(1.0).ln();
    }
    0.5 * expected * expected * log_growth.exp() * (1.0 + 1e-6)
}

/// A complex number and a bound on its error.
#[derive(Clone, Copy)]
struct Rounded {
    value: Complex64,
    size: f64,
    error: f64,
}

impl Rounded {
    fn new(value: Complex64, error: f64) -> Self {
        Self { value, size: value.norm_sqr().sqrt(), error }
    }

    fn times(self, other: Self) -> Self {
        let rounding = 4.0 * UNIT * self.size * other.size;
        let error = self.error * (other.size + other.error) + self.size * other.error + rounding;
        Self::new(self.value * other.value, error)
    }

    fn plus(self, other: Self) -> Self {
        let rounding = 2.0 * UNIT * (self.size + other.size);
        Self::new(self.value + other.value, self.error + other.error + rounding)
    }

    fn scaled(self, by: f64) -> Self {
        Self::new(self.value * by, (self.error + 2.0 * UNIT * self.size) * by)
    }
}

/// One part's jumps, in units of its normalized body.
struct Jump {
    grid: Grid,
    index: Vec<i64>,
    weight: Vec<f64>,
    /// Error bound of all weights together.
    error: f64,
}

impl Jump {
    fn new(masses: &Masses, body: &Tilted, tilt: f64) -> Self {
        let mut error = 0.0;
        let weigh = |(&i, &mass): (&i64, &f64)| {
            if mass == 0.0 {
                return 0.0;
            }
            let exponent = tilt * masses.grid.loss(i);
            let weight = (mass.ln() + exponent - body.log_norm).exp();
            let roundings = 16.0 + 4.0 * (mass.ln().abs() + exponent.abs() + body.log_norm.abs());
            error += UNIT * weight * roundings;
            weight
        };
        let weight = masses.index.iter().zip(&masses.mass).map(weigh).collect();
        Self { grid: masses.grid, index: masses.index.clone(), weight, error }
    }

    fn total(&self) -> f64 {
        self.weight.iter().sum()
    }

    fn transformed(
        &self,
        forward: &dyn RealToComplex<f64>,
        buffer: &mut [f64],
        out: &mut [Complex64],
    ) -> f64 {
        let size = buffer.len();
        buffer.fill(0.0);
        for (&i, &w) in self.index.iter().zip(&self.weight) {
            buffer[i.rem_euclid(size as i64) as usize] += w;
        }
        let error = transform_error(size) * sum_or_norm(buffer.iter().copied(), size) + self.error;
        forward.process(buffer, out).expect("the planner made these buffers");
        error
    }
}

/// The curve of all outcomes with exactly one jump.
fn compose_one_jump(
    bodies: &[(Masses, u64)],
    jumps: &[Masses],
    plan: &Plan,
    side: Side,
    most: f64,
) -> Result<Tail> {
    let bodies: Vec<Tilted> = bodies.iter().map(|(m, n)| Tilted::new(m, *n, plan)).collect();
    let jumps: Vec<Jump> =
        jumps.iter().zip(&bodies).map(|(j, b)| Jump::new(j, b, plan.tilt)).collect();
    if !bodies.iter().all(Tilted::is_finite) || jumps.iter().any(|jump| !jump.error.is_finite()) {
        return Err(Error::LossTooLarge { limit: limits::EPSILON });
    }
    let window = window_of(&bodies, &jumps, plan);
    let size = window.transform_size(most, bodies.len())?;
    let forward = RealFftPlanner::<f64>::new().plan_fft_forward(size);
    let mut buffer = forward.make_input_vec();
    let (mut body, mut jump) = (forward.make_output_vec(), forward.make_output_vec());
    let unit = Rounded::new(Complex64::new(1.0, 0.0), 0.0);
    // Per frequency: the product of all bodies so far, and the sum of the products with one jump.
    let mut spectra = vec![(unit, unit.scaled(0.0)); body.len()];
    for (part, jumps) in bodies.iter().zip(&jumps) {
        let error = part.transformed(forward.as_ref(), &mut buffer, &mut body);
        let jump_error = jumps.transformed(forward.as_ref(), &mut buffer, &mut jump);
        let power = Power::new(part.count - 1, error, BY_SQUARING);
        for ((none, single), (&w, &t)) in spectra.iter_mut().zip(body.iter().zip(&jump)) {
            let (value, size, error_of_power) = power.of(w);
            let others = Rounded { value, size, error: error_of_power };
            let whole =
                others.times(Rounded::new(Complex64::new(1.0 + w.re, w.im), error + 4.0 * UNIT));
            let jumped = others.times(Rounded::new(t, jump_error)).scaled(part.count as f64);
            *single = single.times(whole).plus(none.times(jumped));
            *none = none.times(whole);
        }
    }
    let spectrum_error = 2.0 * spectra.iter().map(|(_, s)| s.error).sum::<f64>();
    let spectrum = spectra.into_iter().map(|(_, s)| s.value).collect();
    let (weights, point_error) = unrolled(spectrum, spectrum_error, 0.0, &window, size);
    let (log_norm, log_norm_error) = normalizer(&bodies);
    Ok(Tail::new(weights, plan, side, log_norm, log_norm_error, point_error, &window, 0.0))
}

/// Powers up to this exponent are computed by squaring, which is more accurate there.
const BY_SQUARING: u64 = 16;

/// Chernoff's inequality gives the range of the sum of all events' bodies except one; the jump
/// shifts that range.
fn window_of(bodies: &[Tilted], jumps: &[Jump], plan: &Plan) -> Window {
    let end = |rate: f64| -> (f64, f64) {
        let moments: Vec<f64> = bodies.iter().map(|b| b.log_moment(rate)).collect();
        let all: f64 = bodies.iter().zip(&moments).map(|(b, m)| b.count as f64 * m).sum();
        // The bound at that end for all events, without the moment of the event that jumps.
        let outside: f64 = bodies
            .iter()
            .zip(jumps)
            .zip(&moments)
            .map(|((b, j), m)| b.count as f64 * j.total() * (plan.log_outside - m).exp())
            .sum();
        ((all - plan.log_outside) / rate, outside * (1.0 + 1e-9))
    };
    let (high, outside_above) = end(plan.upper_rate);
    let (low, outside_below) = end(-plan.lower_rate);
    let ends = || {
        jumps
            .iter()
            .flat_map(|j| [j.index.first(), j.index.last()].map(|i| i.map(|&i| j.grid.loss(i))))
    };
    let nearest = ends().flatten().fold(f64::INFINITY, f64::min).min(plan.epsilon_guess);
    let farthest = ends().flatten().fold(0.0, f64::max);
    let offset: f64 = bodies.iter().map(|b| b.count as f64 * b.grid.offset).sum();
    let offset_size = bodies.iter().map(|b| b.count as f64 * b.grid.offset.abs()).sum();
    let index = |loss: f64| (loss - offset) / plan.mesh;
    Window {
        offset,
        offset_size,
        first: (index(low + nearest).min(index(plan.epsilon_guess)).floor() - 2.0) as i64,
        last: (index(high + farthest).max(index(plan.epsilon_guess)).ceil() + 2.0) as i64,
        outside_above,
        outside_below,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Numerical, Precision};
    use crate::Composition;

    /// The two computations are independent, so they must agree wherever both are tight.
    #[test]
    fn counting_jumps_agrees_with_the_tilt_of_all() {
        for (sigma, rate, steps, delta) in [
            (0.7, 1e-4, 1, 1e-8),
            (0.7, 1e-4, 300, 1e-8),
            (0.9, 1e-3, 2_000, 1e-7),
            (0.5, 1e-5, 50, 1e-10),
        ] {
            let composition = Composition::dp_sgd(sigma, rate, steps);
            let prepared = Numerical::new(&composition, 1e-3 * delta).unwrap();
            let tilted = prepared.epsilon(delta, Precision::default()).unwrap();
            let counted =
                prepared.epsilon_by_jumps(delta, Precision::default(), 1.2 * tilted.upper).unwrap();
            let seen = format!("σ = {sigma}, q = {rate}, {steps} steps: {tilted:?} {counted:?}");
            assert!(counted.lower <= tilted.upper && tilted.lower <= counted.upper, "{seen}");
            assert!(tilted.gap() < 2e-3 && counted.gap() < 2e-3, "{seen}");
        }
    }
}
