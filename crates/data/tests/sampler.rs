//! The Poisson sampler includes each unit with the sampling rate, independently of the others.

use undertone_data::PoissonSampler;

const UNITS: usize = 60;
const STEPS: u64 = 20_000;

/// Counts how often each unit and each pair of units was drawn, how often a unit of an odd step was
/// also in the preceding even step, and how many batches of each size occurred.
fn counts(rate: f64, key: u8) -> (Vec<u64>, Vec<Vec<u64>>, u64, Vec<u64>) {
    let sampler = PoissonSampler::new(UNITS, rate, [key; 32]).unwrap();
    let (mut single, mut pairs) = (vec![0; UNITS], vec![vec![0; UNITS]; UNITS]);
    let (mut sizes, mut again, mut before) = (vec![0; UNITS + 1], 0, vec![false; UNITS]);
    for step in 0..STEPS {
        let drawn = sampler.step(step);
        assert!(
            drawn.windows(2).all(|pair| pair[0] < pair[1])
                && drawn.iter().all(|&unit| unit < UNITS)
        );
        sizes[drawn.len()] += 1;
        if step % 2 == 1 {
            again += drawn.iter().filter(|&&unit| before[unit]).count() as u64;
        }
        before = vec![false; UNITS];
        for &i in &drawn {
            single[i] += 1;
            before[i] = true;
            drawn.iter().for_each(|&j| pairs[i][j] += 1);
        }
    }
    (single, pairs, again, sizes)
}

/// Whether a count of `trials` independent events of probability `p` is within 6 σ + 12 of its
/// expectation.
///
/// By Bernstein's inequality, the probability of a larger deviation is at most 2 exp(−t² / (2σ² +
/// 2t/3)) with t = 6 σ + 12, and the exponent is 18 (σ + 2)² / ((σ + 1)² + 3) ≥ 18 for every σ.
fn plausible(count: u64, trials: f64, p: f64) -> bool {
    (count as f64 - trials * p).abs() <= 6.0 * (trials * p * (1.0 - p)).sqrt() + 12.0
}

/// The keys are fixed, so the test is deterministic. Over randomly chosen keys, a correct sampler
/// would fail with probability below 3 × (60 + 1770 + 1 + 61) counts × 2 exp(−18) < 2·10⁻⁴.
#[test]
fn inclusions_are_of_the_stated_rate_and_independent() {
    for (rate, key) in [(0.01, 1), (0.3, 2), (0.9, 3)] {
        let (single, pairs, again, sizes) = counts(rate, key);
        let steps = STEPS as f64;
        for i in 0..UNITS {
            assert!(
                plausible(single[i], steps, rate),
                "rate {rate}: unit {i} was drawn {} times",
                single[i]
            );
            for (j, &both) in pairs[i].iter().enumerate().take(i) {
                assert!(
                    plausible(both, steps, rate * rate),
                    "rate {rate}: {i} with {j} {both} times"
                );
            }
        }
        // Steps are independent as well: a unit occurs in consecutive steps as often as expected by
        // chance.
        assert!(
            plausible(again, steps / 2.0 * UNITS as f64, rate * rate),
            "rate {rate}: {again} repeats"
        );
        // The batch size is binomial.
        //
        let mut chance = (1.0 - rate).powi(UNITS as i32);
        for (size, &count) in sizes.iter().enumerate() {
            assert!(plausible(count, steps, chance), "rate {rate}: {count} batches of {size}");
            chance *= (UNITS - size) as f64 / (size + 1) as f64 * rate / (1.0 - rate);
        }
    }
}

#[test]
fn batches_may_be_empty() {
    let sampler = PoissonSampler::new(10, 0.05, [4; 32]).unwrap();
    assert!((0..50).any(|step| sampler.step(step).is_empty()));
}
