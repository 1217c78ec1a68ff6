//! Optimisers: from a released gradient to new weights, in the same pass over memory that adds the
//! noise.
//!
//! Everything here is post-processing of what was released, so none of it costs privacy.

use crate::method::{GradientRelease, Released};
use crate::model::{Parameter, ParameterId, Parameters};
use crate::noise::GRAIN;
use crate::tensor::cpu::simd::widest;
use crate::tensor::{Host, Matrix, Result};
use rayon::prelude::*;
use undertone_run::OptimiserKind;

/// What an optimiser is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Which one.
    pub kind: OptimiserKind,
    /// Of SGD.
    pub momentum: f32,
    /// How long Adam remembers gradients and their squares.
    pub betas: (f32, f32),
    /// Adam's smallest denominator.
    pub epsilon: f32,
    /// Share of a weight that is taken off in each step, times the learning rate; biases and
    /// normalisations are spared.
    pub weight_decay: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kind: OptimiserKind::Adamw,
            momentum: 0.9,
            betas: (0.9, 0.999),
            epsilon: 1e-8,
            weight_decay: 0.01,
        }
    }
}

/// The smallest denominator of corrected Adam, as a share of the noise's deviation: below it the
/// second moment is noise only.
const CORRECTION_FLOOR: f32 = 0.25;
/// Coordinates of one task: their sum, weights and moments stay in the nearest caches.
const CHUNK: usize = 32 * GRAIN;

/// An optimiser with its memory.
#[derive(Clone, Debug)]
pub struct Optimiser {
    settings: Settings,
    steps: u64,
    moments: Vec<Option<(Host, Host)>>,
}

/// What one chunk's update needs to know.
#[derive(Clone, Copy)]
struct Update {
    settings: Settings,
    rate: f32,
    decay: f32,
    /// 1 − β^t of both moments.
    corrections: (f32, f32),
    /// Of the noise in the gradient, if it is the same everywhere.
    deviation: Option<f32>,
    /// What the sum was divided by, noise and all.
    divisor: f32,
}

impl Optimiser {
    /// Without memory of any gradient.
    pub fn new(settings: Settings, parameters: &Parameters) -> Self {
        Self { settings, steps: 0, moments: vec![None; parameters.len()] }
    }

    /// How many steps were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Both moments of a parameter, if it has been updated.
    pub fn moments(&self, id: ParameterId) -> Option<(&Host, &Host)> {
        self.moments[id.index()].as_ref().map(|(first, second)| (first, second))
    }

    /// Takes up a memory that was saved.
    pub fn restore(&mut self, steps: u64, moments: Vec<(ParameterId, Host, Host)>) {
        self.steps = steps;
        for (id, first, second) in moments {
            self.moments[id.index()] = Some((first, second));
        }
    }

    /// Releases each parameter's sum and moves the parameter. A parameter that nothing was added to
    /// is released all the same.
    pub fn step(
        &mut self,
        parameters: &mut Parameters,
        mut sums: Vec<Option<Matrix>>,
        release: &GradientRelease,
        rate: f64,
    ) -> Result<Released> {
        self.steps += 1;
        let power = |beta: f32| 1.0 - (f64::from(beta).powf(self.steps as f64)) as f32;
        let corrections = (power(self.settings.betas.0), power(self.settings.betas.1));
        let trainable: Vec<ParameterId> =
            parameters.iter().filter(|(_, p)| p.trainable).map(|(id, _)| id).collect();
        let mut released = vec![None; parameters.len()];
        for id in trainable {
            let parameter = parameters.get_mut(id);
            let decay = if parameter.shape.len() > 1 { self.settings.weight_decay } else { 0.0 };
            let update = Update {
                settings: self.settings,
                rate: rate as f32,
                decay,
                corrections,
                deviation: release.deviation(id),
                divisor: release.divisor,
            };
            let sum = sums[id.index()].take();
            let moments = &mut self.moments[id.index()];
            released[id.index()] =
                Some(move_parameter(id, parameter, moments, sum, release, &update)?);
        }
        Ok(Released::new(released, release))
    }
}

fn zeros_like(matrix: &Matrix) -> Host {
    Host::build(matrix.rows(), matrix.columns(), |out| out.fill(0.0))
}

fn move_parameter(
    id: ParameterId,
    parameter: &mut Parameter,
    moments: &mut Option<(Host, Host)>,
    sum: Option<Matrix>,
    release: &GradientRelease,
    update: &Update,
) -> Result<Host> {
    let device = parameter.value.device();
    // On a device the numbers visit the host, where the noise is drawn.
    let mut sum = match sum {
        Some(sum) => sum.to_host()?,
        None => zeros_like(&parameter.value),
    };
    let (mut first, mut second) = moments
        .take()
        .unwrap_or_else(|| (zeros_like(&parameter.value), zeros_like(&parameter.value)));
    // Taken out, so that nobody shares it and it is changed in place.
    let mut value = std::mem::replace(&mut parameter.value, Matrix::zeros(0, 0)).to_host()?;
    let numbers =
        sum.values_mut().par_chunks_mut(CHUNK).zip(value.values_mut().par_chunks_mut(CHUNK));
    let memory =
        first.values_mut().par_chunks_mut(CHUNK).zip(second.values_mut().par_chunks_mut(CHUNK));
    let all = numbers.zip(memory).enumerate();
    all.for_each_init(Vec::new, |deviations, (i, ((sum, value), (first, second)))| {
        release.finish(id, i * CHUNK, sum, deviations);
        widest(
            #[inline(always)]
            || update.apply(value, sum, deviations, first, second),
        );
    });
    parameter.value = Matrix::Host(value).to_device(&device)?;
    *moments = Some((first, second));
    Ok(sum)
}

impl Update {
    /// `deviations` are those of the noise in each coordinate of the sum, where they differ.
    #[inline(always)]
    fn apply(
        &self,
        weights: &mut [f32],
        gradient: &[f32],
        deviations: &[f32],
        first: &mut [f32],
        second: &mut [f32],
    ) {
        let Settings { kind, momentum, betas, epsilon, .. } = self.settings;
        let keep = 1.0 - self.rate * self.decay;
        let numbers = weights.iter_mut().zip(gradient).zip(first.iter_mut().zip(second));
        match kind {
            OptimiserKind::Sgd => {
                for ((w, g), (m, _)) in numbers {
                    *m = momentum.mul_add(*m, *g);
                    *w = (-self.rate).mul_add(*m, keep * *w);
                }
            }
            OptimiserKind::Adamw | OptimiserKind::AdamCorrected => {
                let adam = Adam {
                    betas,
                    epsilon,
                    keep,
                    rate: self.rate / self.corrections.0,
                    second_correction: 1.0 / self.corrections.1,
                };
                match self.deviation {
                    _ if kind == OptimiserKind::Adamw => {
                        for ((w, g), (m, v)) in numbers {
                            adam.step(w, *g, m, v, 0.0);
                        }
                    }
                    Some(deviation) => {
                        for ((w, g), (m, v)) in numbers {
                            adam.step(w, *g, m, v, deviation);
                        }
                    }
                    None => {
                        let factor = 1.0 / self.divisor;
                        for (((w, g), (m, v)), deviation) in numbers.zip(deviations) {
                            adam.step(w, *g, m, v, factor * *deviation);
                        }
                    }
                }
            }
        }
    }
}

/// Adam for one number.
#[derive(Clone, Copy)]
struct Adam {
    betas: (f32, f32),
    epsilon: f32,
    keep: f32,
    rate: f32,
    second_correction: f32,
}

impl Adam {
    /// `deviation` is that of the noise that is taken off the second moment.
    #[inline(always)]
    fn step(&self, w: &mut f32, g: f32, m: &mut f32, v: &mut f32, deviation: f32) {
        // The noise of each step is taken off where it comes in: its deviation may change from step
        // to step.
        let variance = deviation * deviation;
        *m = self.betas.0.mul_add(*m, (1.0 - self.betas.0) * g);
        *v = self.betas.1.mul_add(*v, (1.0 - self.betas.1) * g.mul_add(g, -variance));
        let floor = variance * CORRECTION_FLOOR * CORRECTION_FLOOR;
        let square = (*v * self.second_correction).max(floor);
        *w = self.keep * *w - self.rate * *m / (square.sqrt() + self.epsilon);
    }
}
