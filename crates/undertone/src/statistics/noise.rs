//! Gaussian noise on integer sums.
//!
//! # Statement
//!
//! Sums are multiples of 2⁻²⁰. Rounding a sum plus noise to such a multiple equals adding the
//! rounded noise to the sum. So a release is a post-processing of the Gaussian mechanism, computed
//! without any floating-point number that depends on the data.

use super::contribution::ONE;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A source of Gaussian noise.
pub struct NoiseSource(ChaCha20Rng);

impl NoiseSource {
    /// Noise with a key from the operating system.
    pub fn from_system() -> std::io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(std::io::Error::other)?;
        Ok(Self(ChaCha20Rng::from_seed(key)))
    }

    /// Noise of a run with a secret key, for one of several streams.
    pub(crate) fn with_key(key: [u8; 32], stream: u64) -> Self {
        let mut source = ChaCha20Rng::from_seed(key);
        source.set_stream(stream);
        Self(source)
    }

    /// Noise from a seed, for tests: anyone who knows the seed can subtract it.
    #[cfg(test)]
    pub fn from_seed(seed: u64) -> Self {
        Self(ChaCha20Rng::seed_from_u64(seed))
    }

    /// The sums with noise of this std, in units.
    pub fn added(&mut self, sums: &[i64], std: f64) -> Vec<f64> {
        let noisy = |sum: &i64| {
            let noise = (self.standard() * std * ONE as f64).round() as i64;
            sum.saturating_add(noise) as f64 / ONE as f64
        };
        sums.iter().map(noisy).collect()
    }

    /// A standard normal number, by the Box–Muller transform of 2 × 53 bits.
    fn standard(&mut self) -> f64 {
        // In (0, 1] and [0, 1).
        let mut uniform = |up: u64| ((self.0.next_u64() >> 11) + up) as f64 / (1_u64 << 53) as f64;
        let (radius, angle) = (uniform(1), uniform(0));
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// A random key, for choices that are not released.
    pub fn key(&mut self) -> u64 {
        self.0.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_its_mean_std_and_tails() {
        let mut source = NoiseSource::from_seed(5);
        let (count, std) = (200_000, 3.0);
        let noisy = source.added(&vec![7 * ONE; count], std);
        let mean = noisy.iter().sum::<f64>() / count as f64;
        let square = noisy.iter().map(|x| (x - 7.0).powi(2)).sum::<f64>() / count as f64;
        assert!((mean - 7.0).abs() < 5.0 * std / (count as f64).sqrt(), "{mean}");
        assert!((square / (std * std) - 1.0).abs() < 5.0 * (2.0 / count as f64).sqrt(), "{square}");
        for (at, expected) in [(1.0, 0.158_655), (2.0, 0.022_750), (3.0, 0.001_350)] {
            let beyond = noisy.iter().filter(|x| **x - 7.0 > at * std).count() as f64;
            let spread = 5.0 * (count as f64 * expected).sqrt();
            assert!((beyond - expected * count as f64).abs() < spread, "{at}: {beyond}");
        }
        assert_ne!(source.added(&[0], 1.0), source.added(&[0], 1.0));
    }

    #[test]
    fn a_release_is_a_multiple_of_the_unit_of_sums() {
        let noisy = NoiseSource::from_seed(1).added(&[0, 1, ONE], 1.0);
        assert!(noisy.iter().all(|x| (x * ONE as f64).fract() == 0.0));
    }
}
