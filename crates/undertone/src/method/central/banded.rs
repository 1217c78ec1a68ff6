//! DP-SGD with correlated noise: banded matrix factorization (after Choquette-Choo and others,
//! 2023).
//!
//! Step t releases x_t + (C⁻¹z)_t, where x_t is the clipped sum of the step, z_t ~ N(0, σ²C² I) and
//! the matrix C has b bands ([`Bands`]). Units are split into b groups at random; step t samples
//! only from group t mod b, each of its units with probability q = b · batch/units.
//!
//! **What is proved.** The T steps together cost at most ⌈T/b⌉ Poisson-subsampled Gaussian
//! mechanisms with sampling rate q and noise multiplier σ.
//!
//! The group of a unit is independent of everything else. Fix it, say to g, and fix everything that
//! is drawn for the other units. The releases determine y = C x + z and vice versa. The unit can
//! move x only in steps t ≡ g (mod b), and there it moves y by the column of C, rows t to t + b −
//! 1, times its clipped gradient v_t. These rows are disjoint for different t, so the rows of y
//! fall into blocks, and the unit is or is not in each block (with probability q, by an independent
//! coin for each block). Within a block, v_t is a function of earlier blocks, since the weights at
//! step t are; the later sums of the other units are functions of the releases so far, the same
//! with and without the unit. Subtracting these sums row by row, which we may allow the adversary
//! to do, leaves N(c_k v_t, σ²C²) in row t + k if the unit is in the block and N(0, σ²C²) if it is
//! not: a subsampled Gaussian mechanism with a shift of norm ‖c‖ ‖v_t‖ ≤ C. Blocks compose
//! adaptively, and there are at most ⌈T/b⌉ of them. (The rows before the first block do not depend
//! on the unit.)
//!
//! The ledger has one entry for every b steps, recorded before the first of them. (C⁻¹z)_t is a
//! function of the run's secret: a resumed run recomputes it from the first step, and no file
//! contains it.

use super::dp_sgd::DpSgd;
use crate::gradient::Clip;
use crate::model::Parameters;
use crate::noise::Bands;
use crate::step::{Allocation, Allocator, Correlation, StepCorrelation};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The allocator of DP-SGD with correlated noise.
#[derive(Debug)]
pub struct BandedDpSgd {
    uniform: DpSgd,
    correlation: Correlation,
}

impl BandedDpSgd {
    pub fn new(clip: &Clip, bands: usize, parameters: &Parameters) -> Self {
        let correlation = Correlation::new(Bands::square_root(bands));
        Self { uniform: DpSgd::new(clip, parameters), correlation }
    }
}

impl Allocator for BandedDpSgd {
    /// The fresh noise of a step, (C⁻¹)_{tt} z_t, has std σC/c_0; [`Correlation`] adds the noise of
    /// earlier steps.
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        let first = self.correlation.first();
        let correlation = StepCorrelation { first, spread: self.correlation.spread() };
        Allocation { correlation, ..self.uniform.allocation(noise_multiplier / first) }
    }

    fn correlation(&mut self) -> Option<&mut Correlation> {
        Some(&mut self.correlation)
    }

    fn past(&self) -> Option<&Correlation> {
        Some(&self.correlation)
    }
}

/// The group of each unit: uniform and independent of all other units.
#[derive(Clone, Debug)]
pub struct CyclicGroups {
    of: Vec<u16>,
    bands: u64,
}

impl CyclicGroups {
    pub fn new(units: usize, bands: usize, key: [u8; 32]) -> Self {
        let mut random = ChaCha20Rng::from_seed(key);
        let bands = bands.max(1) as u64;
        // The 64-bit remainder is uniform to within one part in 2^57.
        let of = (0..units).map(|_| (random.next_u64() % bands) as u16).collect();
        Self { of, bands }
    }

    /// Keeps the units that a step may sample.
    pub fn keep(&self, step: u64, mut units: Vec<usize>) -> Vec<usize> {
        units.retain(|&unit| u64::from(self.of[unit]) == step % self.bands);
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every unit is in exactly one group, the groups have about the same size, and a unit is
    /// sampled at most once every b steps.
    #[test]
    fn a_unit_is_drawn_at_most_every_so_many_steps() {
        let (units, bands) = (12_000, 4);
        let groups = CyclicGroups::new(units, bands, [3; 32]);
        let mut times = vec![Vec::new(); units];
        for step in 0..9 {
            let kept = groups.keep(step, (0..units).collect());
            let expected = (units / bands) as f64;
            assert!((kept.len() as f64 - expected).abs() < 5.0 * (expected * 0.75).sqrt());
            kept.iter().for_each(|&unit| times[unit].push(step));
        }
        for steps in times {
            assert!(steps.len() >= 2 && steps.windows(2).all(|pair| pair[1] - pair[0] == 4));
        }
    }
}
