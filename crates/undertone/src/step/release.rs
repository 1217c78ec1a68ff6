//! The release of a step: turns a clipped sum into a noisy mean gradient.

use super::allocation::{Allocation, no_less};
use crate::model::{ParameterId, Parameters};
use crate::noise::{NOISE_BLOCK, Noise};
use crate::tensor::simd::widest;
use crate::tensor::{
    GradientMeans, GradientStatistic, Matrix, NoisyGradient, Result, Stds, gradient_means,
};

/// Offset of each trainable parameter among all coordinates. The noise is a function of these
/// offsets.
#[derive(Clone, Debug)]
pub struct Coordinates {
    firsts: Vec<u64>,
    /// The first coordinate after those of the parameters, used for the count of adaptive clipping.
    end: u64,
}

impl Coordinates {
    /// Lays out the parameters one after the other, each starting at a multiple of [`NOISE_BLOCK`].
    pub fn of(parameters: &Parameters) -> Self {
        let mut next = 0;
        let firsts = parameters
            .iter()
            .map(|(_, parameter)| {
                let first = next;
                if parameter.trainable {
                    next += (parameter.len() as u64).next_multiple_of(NOISE_BLOCK as u64);
                }
                first
            })
            .collect();
        Self { firsts, end: next }
    }

    /// Index of a parameter's first coordinate among all coordinates.
    pub(crate) fn first(&self, parameter: ParameterId) -> u64 {
        self.firsts[parameter.index()]
    }

    /// Index of the first coordinate after those of all parameters.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
}

/// The release of one step: (clipped sum + noise) / divisor. The divisor is the *expected* number
/// of units, since the actual number is private.
#[derive(Clone, Copy, Debug)]
pub struct GradientRelease<'a> {
    /// Index of the step; the noise is a function of it.
    pub step: u64,
    /// The noise and its allocation to coordinates; `None` for non-private training.
    pub noise: Option<(&'a Noise, &'a Allocation)>,
    /// Offset of each parameter's coordinates.
    pub coordinates: &'a Coordinates,
    /// Divisor of the noisy sum.
    pub divisor: f32,
}

impl GradientRelease<'_> {
    /// Standard deviation of the noise in a parameter's released gradient, if it is the same for
    /// all coordinates.
    pub fn std(&self, parameter: ParameterId) -> Option<f32> {
        match self.noise {
            Some((_, allocation)) => {
                let std = allocation.std(parameter)? * allocation.correlation.spread;
                Some(std as f32 / self.divisor)
            }
            None => Some(0.0),
        }
    }
}

fn scale(values: &mut [f32], factor: f32) {
    widest(
        #[inline(always)]
        || {
            for value in values {
                *value *= factor;
            }
        },
    );
}

/// The noisy gradients released by a step; computing with them is post-processing.
#[derive(Debug)]
pub struct Released {
    gradients: Vec<Option<Matrix>>,
    allocation: Option<Allocation>,
    divisor: f32,
}

impl Released {
    /// Wraps gradients to which noise has been added.
    pub(crate) fn new(gradients: Vec<Option<Matrix>>, release: &GradientRelease) -> Self {
        let allocation = release.noise.map(|(_, allocation)| allocation.clone());
        Self { gradients, allocation, divisor: release.divisor }
    }

    /// The noisy gradient of each trainable parameter.
    pub fn gradients(&self) -> impl Iterator<Item = (ParameterId, &Matrix)> {
        let gradients = self.gradients.iter().enumerate();
        gradients.filter_map(|(i, gradient)| Some((ParameterId(i), gradient.as_ref()?)))
    }

    /// Row and column means of a statistic of each trainable parameter's gradient.
    pub fn means(
        &self,
        statistic: GradientStatistic,
        parameters: &Parameters,
    ) -> Result<Vec<(ParameterId, GradientMeans)>> {
        let ids: Vec<ParameterId> = self.gradients().map(|(id, _)| id).collect();
        let allocation = self.allocation.as_ref();
        let factors: Vec<_> = ids
            .iter()
            .map(|&id| allocation.and_then(|allocation| allocation.std_factors(id)))
            .collect();
        let writers: Vec<_> = ids
            .iter()
            .map(|&id| {
                move |start: usize, out: &mut [f32]| match allocation {
                    Some(allocation) => allocation.write_stds(id, start, out),
                    None => out.fill(0.0),
                }
            })
            .collect();
        let noisy: Vec<NoisyGradient> = self
            .gradients()
            .zip(factors.iter().zip(&writers))
            .map(|((id, gradient), (factors, write))| {
                let stds = match (allocation.map(|allocation| allocation.std(id)), factors) {
                    (None, _) => Stds::Same(0.0),
                    (Some(Some(std)), _) => Stds::Same(no_less(std)),
                    (Some(None), Some((rows, columns))) => Stds::Product { rows, columns },
                    (Some(None), None) => Stds::Each(write),
                };
                let value = parameters.value(id);
                NoisyGradient { gradient, value, stds, divisor: self.divisor }
            })
            .collect();
        Ok(ids.into_iter().zip(gradient_means(statistic, &noisy)?).collect())
    }

    /// Writes the standard deviations of the noise in a parameter's gradient, starting at
    /// coordinate `start`.
    pub fn write_stds(&self, parameter: ParameterId, start: usize, out: &mut [f32]) {
        let Some(allocation) = &self.allocation else { return out.fill(0.0) };
        allocation.write_stds(parameter, start, out);
        scale(out, 1.0 / self.divisor);
    }
}
