//! `calibrate::noise_multiplier` promises the least noise, so little of ε may be left over.
//!
//! UNDERTONE_SETTINGS=4000 tries 4,000 random settings and prints those that leave too much over.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::time::{Duration, Instant};
use undertone_accounting::calibrate::noise_multiplier;
use undertone_accounting::{Accountant, Error, limits};

/// The largest part of ε that may be left over.
fn allowed(target: f64) -> f64 {
    0.002 * target.max(1.0)
}

/// The part of the target left over by the certified upper bound. None if no noise in the certified
/// range meets the target, or if the least noise of that range is more than enough.
fn left_over(target: f64, delta: f64, rate: f64, steps: u64) -> Option<f64> {
    match noise_multiplier(target, delta, rate, steps, Accountant::Auto) {
        Ok(calibrated) => {
            let left = target - calibrated.answer.epsilon.upper;
            assert!(left >= 0.0, "ε = {target}, δ = {delta}, q = {rate}, {steps} steps: {left}");
            (calibrated.noise > limits::NOISE_MULTIPLIER.start() * (1.0 + 1e-9)).then_some(left)
        }
        Err(Error::Unreachable { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn little_of_epsilon_is_left_over() {
    let mut tried = 0;
    for target in [0.3, 1.23545, 6.67795, 8.66573] {
        for delta in [1e-3, 3.02e-6, 3e-11] {
            for (rate, steps) in [(0.5, 20), (0.01307, 259), (2.284e-3, 424), (2.2e-5, 40_000)] {
                let Some(left) = left_over(target, delta, rate, steps) else { continue };
                tried += 1;
                assert!(
                    left <= allowed(target),
                    "{left} of ε = {target} is left over at δ = {delta}, q = {rate}, {steps} steps"
                );
            }
        }
    }
    assert!(tried > 40, "{tried}");
}

#[test]
fn little_of_epsilon_is_left_over_at_random_settings() {
    let wanted =
        std::env::var("UNDERTONE_SETTINGS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut uniform = || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let (mut tried, mut loose, mut slowest) = (0, 0, Duration::ZERO);
    let start = Instant::now();
    for i in 0..wanted {
        let target = 0.05 * 400_f64.powf(uniform());
        let delta = 10_f64.powf(-2.0 - 10.0 * uniform());
        let rate = 1e-5_f64.powf(uniform());
        let steps = 1e5_f64.powf(uniform()).max(1.0) as u64;
        let begun = Instant::now();
        let left = left_over(target, delta, rate, steps);
        slowest = slowest.max(begun.elapsed());
        tried += usize::from(left.is_some());
        if let Some(left) = left.filter(|left| *left > allowed(target)) {
            loose += 1;
            println!("{i}: {left} of {target} at δ = {delta:e}, q = {rate:e}, {steps} steps");
        }
    }
    let all = start.elapsed();
    println!("{tried} of {wanted} settings, {loose} leave too much; {all:?}, slowest {slowest:?}");
    assert_eq!(loose, 0);
}
