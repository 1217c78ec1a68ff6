//! Gaussian noise from a cryptographically secure random number generator.
//!
//! The noise of coordinate i in step t is a function of the key, t and i alone. It therefore does
//! not depend on how the work is split between threads, and a resumed run draws the same noise.
//!
//! # Floating point
//!
//! The theorems are about real numbers. A computer adds floating-point numbers, and which results
//! of `sum + noise` are possible depends on `sum`: an attacker could read private bits from the
//! last digits, or from results that are impossible for some sums. There are three defenses. First,
//! the noise is added with a single rounding (a fused multiply-add), so the result is a function of
//! the exact sum of both. Second, the result is rounded to a grid of width s/512 to s/256 (s is the
//! standard deviation), which is post-processing and adds a few millionths to the variance. Third,
//! the noise itself is finer than the grid *everywhere*, near 0 and in the tails, jointly in both
//! coordinates of a pair ([`pair`]): every grid point near the sum can be reached from any sum,
//! either by thousands of different draws or with negligible probability. It is not proved that the
//! probabilities of grid points are exactly those of the real Gaussian: the noise has a relative
//! error of about 2e-7, or 2e-4 of a cell. The ledger lists this as an assumption.

use super::chacha::{LANES, blocks};
use super::normal::{TAIL, pair, tail_pair};
use super::secret::{Secret, purpose};
use crate::cpu::simd::widest;

/// Normal variates per sixteen ChaCha blocks: eight pairs from each block, two words per pair.
const ROUND: usize = 16 * LANES;

/// First block counter of the extra bits for tails.
const TAILS: u64 = 1 << 63;

/// Granularity of the noise: parallel chunks must start at multiples of this.
pub const NOISE_BLOCK: usize = ROUND;

/// A source of Gaussian noise.
#[derive(Clone)]
pub struct Noise {
    key: [u32; 8],
}

/// Omits the key, which is secret.
impl std::fmt::Debug for Noise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Noise")
    }
}

impl Noise {
    /// The noise of a run's mechanism.
    pub fn new(secret: &Secret) -> Self {
        Self::with_key(&secret.key(purpose::NOISE))
    }

    /// Noise with a key derived for another use of the secret.
    pub fn with_key(bytes: &[u8; 32]) -> Self {
        Self {
            key: std::array::from_fn(|i| {
                u32::from_le_bytes(std::array::from_fn(|j| bytes[4 * i + j]))
            }),
        }
    }

    /// The key, with two words in each value, for a device that draws the same noise.
    pub fn key_pairs(&self) -> [u64; 4] {
        std::array::from_fn(|i| u64::from(self.key[2 * i]) | u64::from(self.key[2 * i + 1]) << 32)
    }

    /// Adds Gaussian noise of standard deviation `std` to the coordinates starting at `first`,
    /// rounds to the grid, and multiplies by `factor`. If `std` is 0, no noise is added.
    ///
    /// # Panics
    /// If `first` is not a multiple of [`NOISE_BLOCK`].
    pub fn add(&self, step: u64, first: u64, std: f32, factor: f32, values: &mut [f32]) {
        assert!(first.is_multiple_of(ROUND as u64), "noise begins at a multiple of its grain");
        if std == 0.0 {
            values.iter_mut().for_each(|value| *value *= factor);
            return;
        }
        let grid = grid(std);
        let (scale, inverse, back) = (std / grid, 1.0 / grid, grid * factor);
        widest(
            #[inline(always)]
            || {
                for (round, values) in values.chunks_mut(ROUND).enumerate() {
                    let normal = self.round(step, first / ROUND as u64 + round as u64);
                    for (value, z) in values.iter_mut().zip(&normal) {
                        *value = z.mul_add(scale, *value * inverse).round_ties_even() * back;
                    }
                }
            },
        );
    }

    /// Adds standard normal noise to the coordinates starting at `first`, without rounding to a
    /// grid: for noise that is correlated across steps and never released on its own.
    ///
    /// # Panics
    /// If `first` is not a multiple of [`NOISE_BLOCK`].
    pub fn add_standard(&self, step: u64, first: u64, values: &mut [f32]) {
        assert!(first.is_multiple_of(ROUND as u64), "noise begins at a multiple of its grain");
        widest(
            #[inline(always)]
            || {
                for (round, values) in values.chunks_mut(ROUND).enumerate() {
                    let normal = self.round(step, first / ROUND as u64 + round as u64);
                    values.iter_mut().zip(&normal).for_each(|(value, z)| *value += z);
                }
            },
        );
    }

    /// Like [`Noise::add`], with a standard deviation for each coordinate.
    ///
    /// # Panics
    /// If `first` is not a multiple of [`NOISE_BLOCK`].
    pub fn add_each(&self, step: u64, first: u64, stds: &[f32], factor: f32, values: &mut [f32]) {
        assert!(first.is_multiple_of(ROUND as u64), "noise begins at a multiple of its grain");
        widest(
            #[inline(always)]
            || {
                let chunks = values.chunks_mut(ROUND).zip(stds.chunks(ROUND));
                for (round, (values, stds)) in chunks.enumerate() {
                    let normal = self.round(step, first / ROUND as u64 + round as u64);
                    for ((value, z), &std) in values.iter_mut().zip(&normal).zip(stds) {
                        let grid = grid(std);
                        let inverse = inverse_of_power(grid);
                        let noisy =
                            z.mul_add(std * inverse, *value * inverse).round_ties_even() * grid;
                        *value = factor * if std == 0.0 { *value } else { noisy };
                    }
                }
            },
        );
    }

    /// Standard normal variates for the [`ROUND`] coordinates of one round.
    #[inline(always)]
    fn round(&self, step: u64, round: u64) -> [f32; ROUND] {
        let words = blocks(&self.key, step, round * LANES as u64);
        let mut normal = [0.0; ROUND];
        for i in 0..8 {
            let (first_word, second_word) = (&words[2 * i], &words[2 * i + 1]);
            let out = &mut normal[2 * LANES * i..2 * LANES * (i + 1)];
            let (cosines, sines) = out.split_at_mut(LANES);
            for l in 0..LANES {
                (cosines[l], sines[l]) = pair(first_word[l], second_word[l]);
            }
        }
        // Only one round in about five hundred has pairs in the tails.
        let mut least = u32::MAX;
        for ones in words.iter().step_by(2) {
            for &word in ones {
                least = least.min(word);
            }
        }
        if least < TAIL {
            self.finish_tails(step, round, &words, &mut normal);
        }
        normal
    }

    /// Recomputes pairs in the tails with additional random bits, from blocks that are used for
    /// nothing else.
    #[cold]
    fn finish_tails(
        &self,
        step: u64,
        round: u64,
        words: &[[u32; LANES]; 16],
        normal: &mut [f32; ROUND],
    ) {
        for i in 0..8 {
            for l in (0..LANES).filter(|&l| words[2 * i][l] < TAIL) {
                let more = blocks(&self.key, step, TAILS + round * LANES as u64 + l as u64);
                let more = u64::from(more[2 * i][0]) << 32 | u64::from(more[2 * i + 1][0]);
                let (cosine, sine) = tail_pair(words[2 * i][l], words[2 * i + 1][l], more);
                normal[2 * LANES * i + l] = cosine;
                normal[2 * LANES * i + LANES + l] = sine;
            }
        }
    }
}

/// The width of the grid: the power of two in (std/512, std/256].
#[inline(always)]
fn grid(std: f32) -> f32 {
    let power = f32::from_bits(std.to_bits() & 0x7f80_0000);
    (power / 256.0).max(f32::MIN_POSITIVE)
}

/// 1/x for a power of two between 2⁻¹²⁶ and 2¹²⁶, computed exactly by negating the exponent.
#[inline(always)]
fn inverse_of_power(x: f32) -> f32 {
    f32::from_bits(0x7f00_0000 - x.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_inverted_exactly() {
        for std in [f32::MIN_POSITIVE, 1e-20, 0.3, 1.0, 7e4, f32::MAX] {
            let grid = grid(std);
            assert_eq!(inverse_of_power(grid), 1.0 / grid, "{std}");
        }
    }

    impl Noise {
        /// The normal variates before scaling and rounding.
        fn standard(&self, step: u64, count: usize) -> Vec<f32> {
            let rounds = count.div_ceil(ROUND) as u64;
            let mut numbers: Vec<f32> =
                (0..rounds).flat_map(|round| self.round(step, round)).collect();
            numbers.truncate(count);
            numbers
        }
    }

    #[test]
    fn stds_may_differ_between_coordinates() {
        let noise = noise(4);
        let start: Vec<f32> = (0..600).map(|i| i as f32 * 0.01).collect();
        let (mut same, mut each) = (start.clone(), start.clone());
        noise.add(3, 256, 0.7, 0.5, &mut same);
        noise.add_each(3, 256, &[0.7; 600], 0.5, &mut each);
        assert_eq!(same, each);
        let stds: Vec<f32> =
            (0..600).map(|i| if i % 3 == 0 { 0.0 } else { 0.01 * i as f32 }).collect();
        let mut mixed = start.clone();
        noise.add_each(3, 256, &stds, 1.0, &mut mixed);
        for i in 0..600 {
            let mut alone = start.clone();
            noise.add(3, 256, stds[i], 1.0, &mut alone);
            assert_eq!(alone[i], mixed[i], "coordinate {i}");
        }
    }

    /// The joint distribution of pairs near the sum: every grid cell has the probability that the
    /// normal distribution assigns to it.
    #[test]
    fn cells_next_to_the_sum_are_filled_as_they_should_be() {
        // Cells have a side of a quarter standard deviation, so that a few million draws fill them;
        // the two coordinates of a pair are 16 apart.
        let (count, side) = (4_000_000, 0.25_f64);
        let numbers = noise(8).standard(1, count);
        let mut cells = [[0.0_f64; 5]; 5];
        for chunk in numbers.chunks_exact(32) {
            for l in 0..16 {
                let cell = |x: f32| (f64::from(x) / side).round() + 2.0;
                let (i, j) = (cell(chunk[l]), cell(chunk[16 + l]));
                if (0.0..5.0).contains(&i) && (0.0..5.0).contains(&j) {
                    cells[i as usize][j as usize] += 1.0;
                }
            }
        }
        let share = |i: usize| {
            let middle = (i as f64 - 2.0) * side;
            phi(middle + 0.5 * side) - phi(middle - 0.5 * side)
        };
        let pairs = count as f64 / 2.0;
        for (i, row) in cells.iter().enumerate() {
            for (j, &actual) in row.iter().enumerate() {
                let want = pairs * share(i) * share(j);
                assert!(
                    (actual - want).abs() < 5.0 * want.sqrt(),
                    "cell {i}, {j}: {actual}, not {want}"
                );
            }
        }
    }

    #[test]
    fn tails_are_finished_with_bits_of_their_own() {
        let source = noise(5);
        let mut tails = 0;
        for round in 0..4_000 {
            let (words, normal) =
                (blocks(&source.key, 3, round * LANES as u64), source.round(3, round));
            for i in 0..8 {
                for l in (0..LANES).filter(|&l| words[2 * i][l] < TAIL) {
                    let plain = pair(words[2 * i][l], words[2 * i + 1][l]);
                    let have = (normal[2 * LANES * i + l], normal[2 * LANES * i + LANES + l]);
                    assert!((plain.0 - have.0).abs() < 0.1 && (plain.1 - have.1).abs() < 0.1);
                    assert!(have.0.hypot(have.1) > 4.7);
                    tails += 1;
                }
            }
        }
        assert!((1..40).contains(&tails), "{tails} of about 8");
    }

    fn noise(seed: u64) -> Noise {
        Noise::new(&Secret::from_seed(seed))
    }

    /// The standard normal CDF, from the continued fraction and series of the complementary error
    /// function in double precision.
    fn phi(x: f64) -> f64 {
        let z = x.abs();
        let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let upper = if z < 3.0 {
            let (mut term, mut sum, mut k) = (z, z, 1.0);
            while term > 1e-17 {
                term *= z * z / (2.0 * k + 1.0);
                sum += term;
                k += 1.0;
            }
            0.5 - density * sum
        } else {
            density / (1..200).rev().fold(z, |f, k| z + f64::from(k) / f)
        };
        if x > 0.0 { 1.0 - upper } else { upper }
    }

    #[test]
    fn the_distribution_is_normal() {
        let count = 2_000_000;
        let mut numbers = noise(3).standard(5, count);
        let n = count as f64;
        let moment = |k: i32| numbers.iter().map(|&x| f64::from(x).powi(k)).sum::<f64>() / n;
        // Five standard deviations of each estimate.
        assert!(moment(1).abs() < 5.0 / n.sqrt());
        assert!((moment(2) - 1.0).abs() < 5.0 * (2.0 / n).sqrt());
        assert!(moment(3).abs() < 5.0 * (15.0 / n).sqrt());
        assert!((moment(4) - 3.0).abs() < 5.0 * (96.0 / n).sqrt());
        // Kolmogorov–Smirnov test: a correct sampler fails it with probability below 1e-6.
        numbers.sort_by(f32::total_cmp);
        let distance = |(i, &x): (usize, &f32)| {
            let f = phi(f64::from(x));
            (f - i as f64 / n).abs().max((f - (i + 1) as f64 / n).abs())
        };
        let furthest = numbers.iter().enumerate().map(distance).fold(0.0, f64::max);
        assert!(furthest < 2.7 / n.sqrt(), "{furthest}");
        assert!(numbers[count - 1] > 4.5 && numbers[0] < -4.5);
    }

    #[test]
    fn neighbors_and_steps_are_independent() {
        let (a, b, c) = (
            noise(1).standard(0, 400_000),
            noise(1).standard(1, 400_000),
            noise(2).standard(0, 400_000),
        );
        let correlation = |x: &[f32], y: &[f32]| {
            x.iter().zip(y).map(|(x, y)| f64::from(x * y)).sum::<f64>() / (x.len() as f64).sqrt()
        };
        for (x, y) in [
            (&a[..], &b[..]),
            (&a[..], &c[..]),
            (&a[1..], &a[..]),
            (&a[16..], &a[..]),
            (&a[32..], &a[..]),
            (&a[256..], &a[..]),
        ] {
            let length = x.len().min(y.len());
            assert!(correlation(&x[..length], &y[..length]).abs() < 5.0);
        }
    }

    #[test]
    fn noise_does_not_depend_on_how_the_work_is_cut() {
        let source = noise(9);
        let mut whole = vec![0.5; 1_000];
        source.add(4, 0, 0.3, 1.0, &mut whole);
        let mut parts = vec![0.5; 1_000];
        let (front, back) = parts.split_at_mut(3 * NOISE_BLOCK);
        source.add(4, 3 * NOISE_BLOCK as u64, 0.3, 1.0, back);
        source.add(4, 0, 0.3, 1.0, front);
        assert_eq!(whole, parts);
    }

    #[test]
    fn noise_has_the_std_that_was_asked_for_and_lies_on_the_grid() {
        for std in [1e-3_f32, 0.7, 1.0, 130.0] {
            let mut values = vec![2.0 * std; 500_000];
            noise(6).add(2, 0, std, 1.0, &mut values);
            let n = values.len() as f64;
            let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n / f64::from(std);
            let square =
                values.iter().map(|&x| (f64::from(x) / f64::from(std) - 2.0).powi(2)).sum::<f64>()
                    / n;
            assert!((mean - 2.0).abs() < 5.0 / n.sqrt(), "{std}: mean {mean}");
            assert!((square - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "{std}: variance {square}");
            let grid = grid(std);
            assert!((256.0..512.0).contains(&(std / grid)));
            assert!(values.iter().all(|x| (x / grid).fract() == 0.0));
        }
    }

    #[test]
    fn a_std_of_zero_leaves_the_sum_as_it_is() {
        let mut values = vec![0.123_456_7; 10];
        noise(1).add(0, 0, 0.0, 1.0, &mut values);
        assert_eq!(values, [0.123_456_7; 10]);
    }
}
