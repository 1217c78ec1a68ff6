//! Poisson sampling of privacy units, as assumed by the accountant.

use super::error::{Error, Result};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Poisson sampler: draws the privacy units of each step.
///
/// # Guarantee
///
/// In every step, every unit is included with probability exactly `sampling_rate` (the exact value
/// of the `f64`), independently of all other units and steps, up to the indistinguishability of
/// ChaCha20 from random bits. The batch size is therefore random, with mean `units ×
/// sampling_rate`, and may be 0: a step on an empty batch must still be taken, including its noise.
///
/// The sample of step `t` is a function only of the key and `t`, so a resumed run draws the same
/// samples as an uninterrupted one. Amplification by subsampling holds against adversaries who do
/// not know the key: obtain it from the operating system, use it for nothing else, and keep it as
/// secret as the data.
#[derive(Clone)]
pub struct PoissonSampler {
    units: usize,
    sampling_rate: f64,
    /// The base-2⁶⁴ digits of the sampling rate; empty if the rate is 1.
    digits: Vec<u64>,
    key: [u8; 32],
}

/// Omits the key, which is secret.
impl std::fmt::Debug for PoissonSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoissonSampler")
            .field("units", &self.units)
            .field("sampling_rate", &self.sampling_rate)
            .finish()
    }
}

impl PoissonSampler {
    /// Creates a sampler of `units` units with sampling rate `sampling_rate` in (0, 1].
    pub fn new(units: usize, sampling_rate: f64, key: [u8; 32]) -> Result<PoissonSampler> {
        if !(sampling_rate > 0.0 && sampling_rate <= 1.0) {
            return Err(Error::invalid(
                "the sampling rate",
                sampling_rate,
                "above 0 and at most 1",
            ));
        }
        Ok(PoissonSampler { units, sampling_rate, digits: digits(sampling_rate), key })
    }

    /// The units of a step, in increasing order.
    pub fn step(&self, step: u64) -> Vec<usize> {
        if self.digits.is_empty() {
            return (0..self.units).collect();
        }
        let mut random = ChaCha20Rng::from_seed(self.key);
        random.set_stream(step);
        (0..self.units).filter(|_| self.included(&mut random)).collect()
    }

    /// Number of privacy units.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Sampling rate: the probability with which each unit is included.
    pub fn sampling_rate(&self) -> f64 {
        self.sampling_rate
    }

    /// Whether a uniform number in [0, 1) is below the sampling rate; draws only as many of its
    /// digits as needed.
    fn included(&self, random: &mut ChaCha20Rng) -> bool {
        for &digit in &self.digits {
            let drawn = random.next_u64();
            if drawn != digit {
                return drawn < digit;
            }
        }
        false
    }
}

/// All base-2⁶⁴ digits of a number below 1: multiplying by 2⁶⁴ and subtracting the integer part are
/// exact in `f64`, and nothing remains after at most 17 digits.
fn digits(sampling_rate: f64) -> Vec<u64> {
    let (mut digits, mut rest) =
        (Vec::new(), if sampling_rate < 1.0 { sampling_rate } else { 0.0 });
    while rest > 0.0 {
        let scaled = rest * 2_f64.powi(64);
        digits.push(scaled as u64);
        rest = scaled - scaled.floor();
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_outside_its_domain_is_refused() {
        for sampling_rate in [0.0, -0.1, 1.0 + f64::EPSILON, f64::NAN, f64::INFINITY] {
            assert!(matches!(
                PoissonSampler::new(3, sampling_rate, [0; 32]),
                Err(Error::Invalid { .. })
            ));
        }
    }

    #[test]
    fn the_digits_are_the_rate() {
        assert_eq!(digits(0.5), [1 << 63]);
        assert_eq!(digits(2_f64.powi(-65)), [0, 1 << 63]);
        assert_eq!(digits(f64::from_bits(1)).len(), 17);
        for sampling_rate in [0.1, 1e-5, 0.999, 1e-30] {
            let again = digits(sampling_rate)
                .iter()
                .rev()
                .fold(0.0, |sum, &d| (sum + d as f64) / 2_f64.powi(64));
            assert_eq!(again, sampling_rate);
        }
    }

    #[test]
    fn a_rate_of_one_takes_all_and_a_tiny_one_none() {
        assert_eq!(PoissonSampler::new(4, 1.0, [1; 32]).unwrap().step(9), [0, 1, 2, 3]);
        let never = PoissonSampler::new(1000, f64::from_bits(1), [1; 32]).unwrap();
        assert!((0..100).all(|step| never.step(step).is_empty()));
        assert!(PoissonSampler::new(0, 0.5, [1; 32]).unwrap().step(0).is_empty());
    }

    #[test]
    fn a_step_is_drawn_again_alike_and_others_differ() {
        let sampler = PoissonSampler::new(200, 0.3, [2; 32]).unwrap();
        assert_eq!(sampler.step(5), sampler.clone().step(5));
        assert_ne!(sampler.step(5), sampler.step(6));
        assert_ne!(sampler.step(5), PoissonSampler::new(200, 0.3, [3; 32]).unwrap().step(5));
    }

    #[test]
    fn the_key_is_not_printed() {
        let shown = format!("{:?}", PoissonSampler::new(2, 0.5, [77; 32]).unwrap());
        assert_eq!(shown, "PoissonSampler { units: 2, sampling_rate: 0.5 }");
    }
}
