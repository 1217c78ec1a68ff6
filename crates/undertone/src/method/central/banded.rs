//! DP-SGD with correlated noise: banded matrix factorisation (after Choquette-Choo and others,
//! 2023).
//!
//! Step t releases x_t + (C⁻¹z)_t, where x_t is the clipped sum of the step, z_t ~ N(0, σ²C² I) and
//! the matrix C has b bands ([`Bands`]). Units are split into b groups at random; step t draws from
//! group t mod b alone, each of its units with probability q = b · batch/units.
//!
//! **What is proved.** The T steps together are at most ⌈T/b⌉ Poisson-subsampled Gaussian
//! mechanisms with sampling rate q and noise multiplier σ.
//!
//! The group of a unit is independent of everything else: fix it, say g, and fix all that is drawn
//! for the other units. From the releases follow y = C x + z and back. The unit can move x in steps
//! t ≡ g (mod b) alone, and there it moves y by the column of C, rows t to t + b − 1, times its
//! clipped gradient v_t. These rows are disjoint for different t, so the rows of y fall into
//! blocks, in each of which the unit is or is not (with probability q, by a coin of the block's
//! own). Within a block, v_t is a function of earlier blocks, since the weights at step t are; the
//! later sums of the other units are functions of the releases so far, the same with and without
//! the unit. Subtracting them, row after row, which the adversary may be allowed to do, leaves
//! N(c_k v_t, σ²C²) in row t + k if the unit is in the block and N(0, σ²C²) if not: a subsampled
//! Gaussian mechanism with a shift of norm ‖c‖ ‖v_t‖ ≤ C. Blocks compose adaptively, and there are
//! at most ⌈T/b⌉. (The rows before the first block do not depend on the unit.)
//!
//! The ledger has an entry for every b steps, recorded before the first of them. (C⁻¹z)_t is a
//! function of the run's secret: a resumed run computes it again from the first step on, and it is
//! in no file.

use super::allocation::{Allocation, Allocator, StepCorrelation};
use super::dp_sgd::DpSgd;
use crate::collective::Slice;
use crate::gradient::Clip;
use crate::method::Coordinates;
use crate::model::Parameters;
use crate::noise::{Bands, NOISE_BLOCK, Noise};
use crate::tensor::{Matrix, Result};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;
use std::collections::VecDeque;

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
    /// The fresh noise of a step, (C⁻¹)_{tt} z_t, has std σC/c_0; the noise of earlier steps comes
    /// to it by [`Correlation`].
    fn allocation(&self, noise_multiplier: f64) -> Allocation {
        let first = self.correlation.bands.coefficients()[0];
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

/// The noise of earlier steps, from which that of the next one follows: with r_k = c_k/c_0 and m_t
/// the noise of step t over the std of its fresh part, m_t = z_t − Σ_k r_k m_{t−k}.
#[derive(Debug)]
pub struct Correlation {
    bands: Bands,
    /// The step that `past` comes before.
    next: u64,
    /// m_{next−1}, m_{next−2}, …, at most b − 1 of them, by [`Slice`].
    past: VecDeque<Vec<Vec<f32>>>,
}

impl Correlation {
    fn new(bands: Bands) -> Self {
        Self { bands, next: 0, past: VecDeque::new() }
    }

    /// Std of the noise of the next step over that of its fresh part: (Σ_{k≤t} d_k²)^½ c_0, where d
    /// are the coefficients of C⁻¹.
    fn spread(&self) -> f64 {
        // The coefficients fall quickly; after some hundreds the sum does not change any more.
        let count = (self.next as usize + 1).min(512);
        let inverse = self.bands.inverse(count);
        inverse.iter().map(|d| d * d).sum::<f64>().sqrt() * self.bands.coefficients()[0]
    }

    /// Moves to a step, computing the noise of all steps before it that are not known, of the
    /// coordinates of these slices, which are always the same.
    pub fn go_to(&mut self, step: u64, noise: &Noise, coordinates: &Coordinates, slices: &[Slice]) {
        if step < self.next {
            (self.next, self.past) = (0, VecDeque::new());
        }
        while self.next < step {
            let mut now = self.of_past(slices);
            for (Slice { parameter, range }, now) in slices.iter().zip(&mut now) {
                let first = coordinates.first(*parameter) + range.start as u64;
                let chunks = now.par_chunks_mut(32 * NOISE_BLOCK).enumerate();
                chunks.for_each(|(i, chunk)| {
                    let first = first + (i * 32 * NOISE_BLOCK) as u64;
                    noise.add_standard(self.next, first, chunk);
                });
            }
            self.past.push_front(now);
            self.past.truncate(self.bands.count() - 1);
            self.next += 1;
        }
    }

    /// −Σ_k r_k m_{t−k} of each slice, for the next step t.
    fn of_past(&self, slices: &[Slice]) -> Vec<Vec<f32>> {
        let c = self.bands.coefficients();
        let of = slices.iter().enumerate().map(|(i, slice)| {
            let mut sum = vec![0.0_f32; slice.range.len()];
            for (k, past) in self.past.iter().enumerate() {
                let ratio = -(c[k + 1] / c[0]) as f32;
                let past = past[i].par_iter();
                sum.par_iter_mut().zip(past).for_each(|(sum, m)| *sum = ratio.mul_add(*m, *sum));
            }
            sum
        });
        of.collect()
    }

    /// Adds to the sums of a step, by slice, what the noise of earlier steps contributes; the std
    /// of the fresh noise, which is added later, is `std`. A slice without a sum is a whole
    /// parameter.
    pub fn add_past(
        &self,
        sums: &mut [Option<Matrix>],
        std: f32,
        slices: &[Slice],
        parameters: &Parameters,
    ) -> Result<()> {
        if self.past.is_empty() {
            return Ok(());
        }
        for ((slice, past), sum) in slices.iter().zip(self.of_past(slices)).zip(sums) {
            let value = parameters.value(slice.parameter);
            let values = past.iter().map(|m| std * m).collect();
            let [rows, columns] = sum.as_ref().unwrap_or(value).shape();
            let past = Matrix::from_vec(rows, columns, values).to_device(&value.device())?;
            *sum = Some(match sum.take() {
                Some(sum) => crate::tensor::add(&sum, &past)?,
                None => past,
            });
        }
        Ok(())
    }
}

/// The group of each unit: uniform, and independent of all other units.
#[derive(Clone, Debug)]
pub struct CyclicGroups {
    of: Vec<u16>,
    bands: u64,
}

impl CyclicGroups {
    pub fn new(units: usize, bands: usize, key: [u8; 32]) -> Self {
        let mut random = ChaCha20Rng::from_seed(key);
        let bands = bands.max(1) as u64;
        // The remainder of 64 bits is uniform to less than one part in 2^57.
        let of = (0..units).map(|_| (random.next_u64() % bands) as u16).collect();
        Self { of, bands }
    }

    /// Those of the units that a step may draw.
    pub fn keep(&self, step: u64, mut units: Vec<usize>) -> Vec<usize> {
        units.retain(|&unit| u64::from(self.of[unit]) == step % self.bands);
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every unit is in one group, groups are of about equal size, and a unit is drawn every b-th
    /// step at most.
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
