//! The certified bounds against an independent, nearly exact computation.
//!
//! With M(z) = E_P[e^{z·loss}] of one event, δ(ε) is a Laplace inversion along a vertical line
//! through c > 0:
//!
//! ```text
//! δ(ε) = 1/π ∫_0^∞ Re[ Π M_j(c + it)^{k_j} e^{−ε(c + it)} / ((c + it)(c + 1 + it)) ] dt
//! ```
//!
//! The only error of the trapezoidal rule is the aliases Σ δ(ε + mT) e^{cmT}, T = 2π/dt, which the
//! choice of dt makes negligible, and M is a trapezoidal sum of an analytic function. The
//! computation shares neither the grid nor the tilt nor the transform of the accountant.

use realfft::num_complex::Complex64;
use undertone_accounting::{Accountant, Adjacency, Composition, Event, delta, epsilon};

/// (weight, e^{i·t·loss}, e^{i·dt·loss}) at one loss.
type Turning = (f64, Complex64, Complex64);

/// (count, losses, probabilities) of one event.
type Nodes = (f64, Vec<f64>, Vec<f64>);

fn nodes(sigma: f64, q: f64, steps: u64, adjacency: Adjacency, reversed: bool) -> Nodes {
    let shift = 1.0 / sigma;
    let (low, high) = (-14.0 - shift, 14.0 + shift);
    let points = 3000;
    let dz = (high - low) / f64::from(points);
    let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let log_mix = |a: f64| (q * a.exp_m1()).ln_1p();
    let (mut losses, mut masses) = (Vec::new(), Vec::new());
    for i in 0..=points {
        let z = low + dz * f64::from(i);
        let (up, down) = (shift * z - 0.5 * shift * shift, -shift * z - 0.5 * shift * shift);
        let p = (1.0 - q) * density(z) + q * density(z - shift);
        let (loss, mass) = match (adjacency, reversed) {
            (Adjacency::ReplaceOne, _) => (log_mix(up) - log_mix(down), p),
            (Adjacency::AddRemove, false) => (log_mix(up), p),
            (Adjacency::AddRemove, true) => (-log_mix(up), density(z)),
        };
        losses.push(loss);
        masses.push(mass * dz);
    }
    (steps as f64, losses, masses)
}

fn exact_delta(events: &[Nodes], epsilon: f64) -> f64 {
    let cumulant = |c: f64| -> f64 {
        events
            .iter()
            .map(|(k, l, p)| k * l.iter().zip(p).map(|(l, p)| p * (c * l).exp()).sum::<f64>().ln())
            .sum()
    };
    // The saddle point, by a plain scan.
    let exponent = |c: f64| cumulant(c) - c * epsilon - (c * (1.0 + c)).ln();
    let c = (0..400)
        .map(|i| (-4.0 + 0.025 * f64::from(i)).exp())
        .min_by(|a, b| exponent(*a).total_cmp(&exponent(*b)))
        .unwrap();
    let h = 1e-4 * c;
    let variance = (cumulant(c + h) - 2.0 * cumulant(c) + cumulant(c - h)) / (h * h);
    let dt = 2.0 * std::f64::consts::PI / (26.0 * variance.sqrt() + 60.0 / c);
    let at_c = cumulant(c);

    // Tilted probabilities, rotated by e^{i·dt·loss} from node to node.
    let mut turning: Vec<(f64, Vec<Turning>)> = events
        .iter()
        .map(|(k, l, p)| {
            let norm: f64 = l.iter().zip(p).map(|(l, p)| p * (c * l).exp()).sum();
            let points = l
                .iter()
                .zip(p)
                .map(|(l, p)| {
                    let weight = p * (c * l).exp() / norm;
                    (weight, Complex64::new(1.0, 0.0), Complex64::from_polar(1.0, dt * l))
                })
                .filter(|p| p.0 > 1e-24)
                .collect();
            (*k, points)
        })
        .collect();
    let mut sum = 0.0;
    for n in 0..400_000 {
        let mut log = Complex64::new(at_c, 0.0);
        let mut size = 1.0_f64;
        for (k, points) in &mut turning {
            let mut value = Complex64::new(0.0, 0.0);
            for (weight, at, turn) in points.iter_mut() {
                value += *at * *weight;
                *at *= *turn;
            }
            log += *k * value.ln();
            size *= value.norm().powf(*k);
        }
        let z = Complex64::new(c, dt * f64::from(n));
        let term = ((log - z * epsilon).exp() / (z * (z + 1.0))).re;
        sum += if n == 0 { 0.5 * term } else { term };
        if size / z.norm_sqr() < 1e-13 / (c * c) {
            return sum * dt / std::f64::consts::PI;
        }
    }
    panic!("the integrand decays too slowly for this test");
}

fn check(events: &[(f64, f64, u64)], adjacency: Adjacency, delta_target: f64) {
    let mut composition = Composition::new(adjacency);
    for &(noise_multiplier, sampling_rate, steps) in events {
        composition.push(Event::PoissonGaussian { noise_multiplier, sampling_rate }, steps);
    }
    let made = |reversed| -> Vec<Nodes> {
        events.iter().map(|&(s, q, k)| nodes(s, q, k, adjacency, reversed)).collect()
    };
    let (forward, backward) = (made(false), made(true));
    let truth = |e: f64| exact_delta(&forward, e).max(exact_delta(&backward, e));

    let bounds = epsilon(&composition, delta_target, Accountant::Prv).unwrap().epsilon;
    // δ decreases, so the true δ at the ends of the interval must lie on either side of the target.
    if bounds.lower > 0.0 {
        let below = truth(bounds.lower);
        assert!(
            below >= delta_target * (1.0 - 1e-7),
            "{events:?} {adjacency}: {bounds:?}, δ(lower) = {below:e}"
        );
    }
    let above = truth(bounds.upper);
    assert!(
        above <= delta_target * (1.0 + 1e-7),
        "{events:?} {adjacency}: {bounds:?}, δ(upper) = {above:e}"
    );

    let e = bounds.estimate.max(0.05);
    let (delta_bounds, exact) = (delta(&composition, e, Accountant::Prv).unwrap().delta, truth(e));
    assert!(
        delta_bounds.lower <= exact * (1.0 + 1e-7) && exact <= delta_bounds.upper * (1.0 + 1e-7),
        "{events:?} {adjacency}: δ({e}) = {exact:e}, not in {delta_bounds:?}"
    );
    assert!(
        delta_bounds.upper < 1.1 * delta_bounds.lower,
        "{events:?} {adjacency}: {delta_bounds:?}"
    );
}

#[test]
fn one_part_adding_or_removing() {
    for (sigma, q, steps, delta) in [
        (1.0, 0.01, 1_000, 1e-5),
        (0.6, 0.02, 500, 1e-6),
        (2.0, 0.2, 300, 1e-8),
        (5.0, 0.5, 2_000, 1e-5),
        (1.0, 0.01, 2_000, 1e-12),
        (0.5, 0.3, 100, 1e-5),
        (20.0, 0.9, 5_000, 1e-3),
        (1.2, 0.004, 50_000, 1e-5),
    ] {
        check(&[(sigma, q, steps)], Adjacency::AddRemove, delta);
    }
}

#[test]
fn one_part_replacing() {
    for (sigma, q, steps, delta) in [
        (1.0, 0.01, 2_000, 1e-5),
        (2.0, 0.1, 500, 1e-9),
        (0.8, 0.3, 60, 1e-6),
        (10.0, 0.6, 3_000, 0.01),
    ] {
        check(&[(sigma, q, steps)], Adjacency::ReplaceOne, delta);
    }
}

#[test]
fn several_parts() {
    let parts = [(1.4, 0.01, 700), (1.1, 0.02, 300), (0.9, 0.005, 2_000)];
    check(&parts, Adjacency::AddRemove, 1e-5);
    check(&parts, Adjacency::ReplaceOne, 1e-7);
}
