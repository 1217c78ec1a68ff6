//! From a clipped sum to a gradient that may be seen.

use super::{GroupedGaussian, Noise};
use crate::gradient::Groups;
use crate::model::{ParameterId, Parameters};

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
                    next += (parameter.len() as u64).next_multiple_of(super::noise::GRAIN as u64);
                }
                first
            })
            .collect();
        Self { firsts }
    }
}

/// One step's release: noise is added to the clipped sum, which is then divided by the *expected* number of units. The true number is private.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// The step, which names the noise.
    pub step: u64,
    /// The noise and how much of it; none for training without privacy.
    pub noise: Option<(&'a Noise, &'a GroupedGaussian)>,
    /// The groups that the noise is given by.
    pub groups: &'a Groups,
    /// Where each parameter's coordinates begin.
    pub coordinates: &'a Coordinates,
    /// What the sum is divided by.
    pub divisor: f32,
}

impl Release<'_> {
    /// The deviation of the noise in a parameter's released gradient.
    pub fn deviation(&self, parameter: ParameterId) -> f32 {
        match (self.noise, self.groups.of(parameter)) {
            (Some((_, mechanism)), Some(group)) => mechanism.deviation(group) as f32 / self.divisor,
            _ => 0.0,
        }
    }

    /// Turns the sum of a parameter's coordinates from `start` on (a multiple of the noise's grain) into what is released of them.
    pub fn finish(&self, parameter: ParameterId, start: usize, values: &mut [f32]) {
        let factor = 1.0 / self.divisor;
        match (self.noise, self.groups.of(parameter)) {
            (Some((noise, mechanism)), Some(group)) => {
                let first = self.coordinates.firsts[parameter.index()] + start as u64;
                noise.add(self.step, first, mechanism.deviation(group) as f32, factor, values);
            }
            _ => values.iter_mut().for_each(|x| *x *= factor),
        }
    }
}
