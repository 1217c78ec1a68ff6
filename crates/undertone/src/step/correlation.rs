//! Noise that is correlated across steps.

use super::release::Coordinates;
use crate::collective::Slice;
use crate::model::Parameters;
use crate::noise::{Bands, NOISE_BLOCK, Noise};
use crate::tensor::{Matrix, Result};
use rayon::prelude::*;
use std::collections::VecDeque;

/// The noise of earlier steps, which determines that of the next step. With r_k = c_k/c_0, and m_t
/// the noise of step t divided by the std of its fresh part, m_t = z_t − Σ_k r_k m_{t−k}.
#[derive(Debug)]
pub struct Correlation {
    bands: Bands,
    /// The step that follows `past`.
    next: u64,
    /// m_{next−1}, m_{next−2}, …, at most b − 1 of them, by [`Slice`].
    past: VecDeque<Vec<Vec<f32>>>,
}

impl Correlation {
    /// An empty history.
    pub fn new(bands: Bands) -> Self {
        Self { bands, next: 0, past: VecDeque::new() }
    }

    /// c_0: the noise with which a step is accounted, in units of its fresh part.
    pub fn first(&self) -> f64 {
        self.bands.coefficients()[0]
    }

    /// Std of the next step's noise divided by that of its fresh part: (Σ_{k≤t} d_k²)^½ c_0, where
    /// d are the coefficients of C⁻¹.
    pub fn spread(&self) -> f64 {
        // The coefficients decay quickly; after a few hundred, the sum no longer changes.
        let count = (self.next as usize + 1).min(512);
        let inverse = self.bands.inverse(count);
        inverse.iter().map(|d| d * d).sum::<f64>().sqrt() * self.bands.coefficients()[0]
    }

    /// Advances to a step, computing the missing noise of all earlier steps for the coordinates of
    /// these slices. The slices must be the same in every call.
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

    /// Adds the contribution of earlier steps' noise to the sums of a step, by slice. The fresh
    /// noise, which is added later, has standard deviation `std`. A slice without a sum is a whole
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
