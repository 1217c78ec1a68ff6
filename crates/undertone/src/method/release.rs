//! From a clipped sum to a gradient that may be seen.

use super::central::{Allocation, no_less};
use crate::model::{ParameterId, Parameters};
use crate::noise::{GRAIN, Noise};
use crate::tensor::Host;
use crate::tensor::cpu::simd::widest;

/// Where each trainable parameter's coordinates begin among all, for the noise.
#[derive(Clone, Debug)]
pub struct Coordinates {
    firsts: Vec<u64>,
}

impl Coordinates {
    /// One after the other, each from a multiple of the noise's grain on.
    pub fn of(parameters: &Parameters) -> Self {
        let mut next = 0;
        let firsts = parameters
            .iter()
            .map(|(_, parameter)| {
                let first = next;
                if parameter.trainable {
                    next += (parameter.len() as u64).next_multiple_of(GRAIN as u64);
                }
                first
            })
            .collect();
        Self { firsts }
    }
}

/// One step's release: noise is added to the clipped sum, which is then divided by the *expected*
/// number of units. The true number is private.
#[derive(Clone, Copy, Debug)]
pub struct GradientRelease<'a> {
    /// The step, which names the noise.
    pub step: u64,
    /// The noise and where how much of it goes; none for training without privacy.
    pub noise: Option<(&'a Noise, &'a Allocation)>,
    /// Where each parameter's coordinates begin.
    pub coordinates: &'a Coordinates,
    /// What the sum is divided by.
    pub divisor: f32,
}

impl GradientRelease<'_> {
    /// The deviation of the noise in a parameter's released gradient, if it is the same for all
    /// coordinates.
    pub fn deviation(&self, parameter: ParameterId) -> Option<f32> {
        match self.noise {
            Some((_, allocation)) => Some(allocation.deviation(parameter)? as f32 / self.divisor),
            None => Some(0.0),
        }
    }

    /// Turns the sum of a parameter's coordinates from `start` on (a multiple of the noise's grain)
    /// into what is released of them. Where deviations differ, those of the noise are left in
    /// `deviations`, before the division.
    pub fn finish(
        &self,
        parameter: ParameterId,
        start: usize,
        values: &mut [f32],
        deviations: &mut Vec<f32>,
    ) {
        let factor = 1.0 / self.divisor;
        let Some((noise, allocation)) = self.noise else {
            return scale(values, factor);
        };
        let first = self.coordinates.firsts[parameter.index()] + start as u64;
        match allocation.deviation(parameter) {
            Some(deviation) => noise.add(self.step, first, no_less(deviation), factor, values),
            None => {
                deviations.resize(values.len(), 0.0);
                allocation.write_deviations(parameter, start, deviations);
                noise.add_each(self.step, first, deviations, factor, values);
            }
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

/// What a step released: noise is on all of it, so anything may be learnt from it.
#[derive(Debug)]
pub struct Released {
    gradients: Vec<Option<Host>>,
    allocation: Option<Allocation>,
    divisor: f32,
}

impl Released {
    /// Gradients on which [`GradientRelease::finish`] has put noise.
    pub(crate) fn new(gradients: Vec<Option<Host>>, release: &GradientRelease) -> Self {
        let allocation = release.noise.map(|(_, allocation)| allocation.clone());
        Self { gradients, allocation, divisor: release.divisor }
    }

    /// The gradient of each trained parameter.
    pub fn gradients(&self) -> impl Iterator<Item = (ParameterId, &Host)> {
        let gradients = self.gradients.iter().enumerate();
        gradients.filter_map(|(i, gradient)| Some((ParameterId(i), gradient.as_ref()?)))
    }

    /// Writes the deviations of the noise in a parameter's gradient, from coordinate `start` on.
    pub fn write_deviations(&self, parameter: ParameterId, start: usize, out: &mut [f32]) {
        let Some(allocation) = &self.allocation else { return out.fill(0.0) };
        allocation.write_deviations(parameter, start, out);
        scale(out, 1.0 / self.divisor);
    }
}
