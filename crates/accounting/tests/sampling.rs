//! The mechanism itself, run many times, must not contradict the certified curve.
//!
//! Outputs are drawn from the subsampled Gaussian mechanism on two neighboring data sets, and their
//! privacy losses are computed from the definition. The share of trials T(ε) in which e^loss
//! exceeds a uniform draw times e^ε is an unbiased estimate of δ(ε): δ(ε) = E[(1 − e^{ε−L})₊] = P(U
//! < 1 − e^{ε−L}). By Hoeffding's inequality its error is t = 4·√(1/(2n)) or more with probability
//! at most 2·e^{−2nt²} = 2·e^{−16} ≈ 2.3·10⁻⁷, for each ε and direction: below 10⁻⁵ for all of them
//! together. So a failure means a wrong curve (or a wrong sampler).

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use undertone_accounting::{Accountant, Adjacency, Composition, Event, delta};

struct Draws(ChaCha20Rng);

impl Draws {
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// The total privacy loss of one run on the data set *with* (or without) the unit.
fn one_run(
    draws: &mut Draws,
    parts: &[(f64, f64, u64)],
    adjacency: Adjacency,
    present: bool,
) -> f64 {
    let mut loss = 0.0;
    for &(sigma, q, steps) in parts {
        for _ in 0..steps {
            let sampled = draws.uniform() < q;
            let contribution = match (sampled, present, adjacency) {
                (false, _, _) | (true, false, Adjacency::AddRemove) => 0.0,
                (true, true, _) => 1.0,
                (true, false, Adjacency::ReplaceOne) => -1.0,
            };
            let output = contribution + sigma * draws.normal();
            // ln of the mixture's density over that of N(0, σ²), for a unit that contributes c.
            let mixture =
                |c: f64| (q * ((c * (2.0 * output - c)) / (2.0 * sigma * sigma)).exp_m1()).ln_1p();
            let other = match adjacency {
                Adjacency::AddRemove => 0.0,
                Adjacency::ReplaceOne => mixture(-1.0),
            };
            loss += mixture(1.0) - other;
        }
    }
    if present { loss } else { -loss }
}

fn check(parts: &[(f64, f64, u64)], adjacency: Adjacency, epsilons: &[f64]) {
    let mut composition = Composition::new(adjacency);
    for &(noise_multiplier, sampling_rate, steps) in parts {
        composition.push(Event::PoissonGaussian { noise_multiplier, sampling_rate }, steps);
    }
    let trials = 200_000;
    let error = 4.0 * (0.5 / f64::from(trials)).sqrt();
    let mut draws = Draws(ChaCha20Rng::seed_from_u64(20_240_601));
    let mut seen = vec![[0_u32; 2]; epsilons.len()];
    for _ in 0..trials {
        for (side, present) in [true, false].into_iter().enumerate() {
            let loss = one_run(&mut draws, parts, adjacency, present);
            let u = draws.uniform();
            for (count, epsilon) in seen.iter_mut().zip(epsilons) {
                count[side] += u32::from(u < 1.0 - (epsilon - loss).exp());
            }
        }
    }
    for (count, &epsilon) in seen.iter().zip(epsilons) {
        let worse = f64::from(count[0].max(count[1])) / f64::from(trials);
        let bounds = delta(&composition, epsilon, Accountant::Prv).unwrap().delta;
        assert!(
            worse <= bounds.upper + error && worse >= bounds.lower - error,
            "{parts:?} {adjacency}: δ({epsilon}) was {worse:.4} in the experiment, certified \
             {bounds:?}"
        );
    }
}

#[test]
fn adding_or_removing() {
    check(&[(0.8, 0.3, 8)], Adjacency::AddRemove, &[0.1, 0.5, 1.0, 2.0, 3.0]);
    check(&[(1.0, 0.5, 3), (0.6, 0.2, 4)], Adjacency::AddRemove, &[0.2, 1.0, 2.5]);
}

#[test]
fn replacing() {
    check(&[(1.0, 0.3, 6)], Adjacency::ReplaceOne, &[0.1, 0.5, 1.0, 2.0, 4.0]);
}

/// The test detects a noise multiplier that is wrong by a tenth.
#[test]
fn the_experiment_has_teeth() {
    let wrong = Composition::dp_sgd(0.88, 0.3, 8);
    let right = Composition::dp_sgd(0.8, 0.3, 8);
    let at = |c: &Composition| delta(c, 1.0, Accountant::Prv).unwrap().delta.estimate;
    let error = 4.0 * (0.5_f64 / 200_000.0).sqrt();
    assert!(at(&right) - at(&wrong) > 2.0 * error);
}
