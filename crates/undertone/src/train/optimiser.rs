//! Optimisers: SGD with momentum, AdamW, and AdamW corrected for noise, in the same pass over
//! memory that adds the noise.
//!
//! An optimiser's step is post-processing of the released gradient, so it costs no privacy.

use crate::method::{GradientRelease, Released};
use crate::model::{Parameter, ParameterId, Parameters};
use crate::noise::NOISE_BLOCK;
use crate::tensor::cpu::simd::widest;
use crate::tensor::{Host, Matrix, Result};
use rayon::prelude::*;
use undertone_run::OptimiserKind;

/// Hyperparameters of an optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub kind: OptimiserKind,
    /// Momentum of SGD.
    pub momentum: f32,
    /// β₁ and β₂ of Adam.
    pub betas: (f32, f32),
    /// ε in the denominator of Adam.
    pub epsilon: f32,
    /// Decoupled weight decay, on weight matrices only: not on biases and normalisation layers.
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

/// The smallest denominator of corrected Adam, as a share of the noise's std: below it the second
/// moment is noise only.
const CORRECTION_FLOOR: f32 = 0.25;
/// Coordinates of one parallel task: their sum, weights and moments stay in cache.
const CHUNK: usize = 32 * NOISE_BLOCK;

/// An optimiser with its state.
#[derive(Clone, Debug)]
pub struct Optimiser {
    settings: Settings,
    steps: u64,
    moments: Vec<Option<(Host, Host)>>,
}

/// The update of one parameter in a step.
#[derive(Clone, Copy)]
struct Update {
    settings: Settings,
    learning_rate: f32,
    decay: f32,
    /// Bias corrections 1 − β^t of both moments.
    corrections: (f32, f32),
    /// Standard deviation of the noise in the gradient, if it is the same for all coordinates.
    std: Option<f32>,
    /// Divisor of the noisy sum.
    divisor: f32,
}

impl Optimiser {
    /// An optimiser before its first step.
    pub fn new(settings: Settings, parameters: &Parameters) -> Self {
        Self { settings, steps: 0, moments: vec![None; parameters.len()] }
    }

    /// Number of steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// First and second moment of a parameter, if it has been updated.
    pub fn moments(&self, id: ParameterId) -> Option<(&Host, &Host)> {
        self.moments[id.index()].as_ref().map(|(first, second)| (first, second))
    }

    /// Restores the state from a checkpoint.
    pub fn restore(&mut self, steps: u64, moments: Vec<(ParameterId, Host, Host)>) {
        self.steps = steps;
        for (id, first, second) in moments {
            self.moments[id.index()] = Some((first, second));
        }
    }

    /// Releases each trainable parameter's sum and updates the parameter. A parameter without a sum
    /// is released too: its release is noise alone.
    pub fn step(
        &mut self,
        parameters: &mut Parameters,
        mut sums: Vec<Option<Matrix>>,
        release: &GradientRelease,
        learning_rate: f64,
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
                learning_rate: learning_rate as f32,
                decay,
                corrections,
                std: release.std(id),
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
    // Gradients on a GPU are copied to the host, where the noise is drawn.
    let mut sum = match sum {
        Some(sum) => sum.to_host()?,
        None => zeros_like(&parameter.value),
    };
    let (mut first, mut second) = moments
        .take()
        .unwrap_or_else(|| (zeros_like(&parameter.value), zeros_like(&parameter.value)));
    // Taken out of the parameter, so that it is not shared and is updated in place.
    let mut value = std::mem::replace(&mut parameter.value, Matrix::zeros(0, 0)).to_host()?;
    let numbers =
        sum.values_mut().par_chunks_mut(CHUNK).zip(value.values_mut().par_chunks_mut(CHUNK));
    let memory =
        first.values_mut().par_chunks_mut(CHUNK).zip(second.values_mut().par_chunks_mut(CHUNK));
    let all = numbers.zip(memory).enumerate();
    all.for_each_init(Vec::new, |stds, (i, ((sum, value), (first, second)))| {
        release.finish(id, i * CHUNK, sum, stds);
        widest(
            #[inline(always)]
            || update.apply(value, sum, stds, first, second),
        );
    });
    parameter.value = Matrix::Host(value).to_device(&device)?;
    *moments = Some((first, second));
    Ok(sum)
}

impl Update {
    /// `stds` are the standard deviations of the noise in each coordinate of the sum, where they
    /// differ.
    #[inline(always)]
    fn apply(
        &self,
        weights: &mut [f32],
        gradient: &[f32],
        stds: &[f32],
        first: &mut [f32],
        second: &mut [f32],
    ) {
        let Settings { kind, momentum, betas, epsilon, .. } = self.settings;
        let keep = 1.0 - self.learning_rate * self.decay;
        let numbers = weights.iter_mut().zip(gradient).zip(first.iter_mut().zip(second));
        match kind {
            OptimiserKind::Sgd => {
                for ((w, g), (m, _)) in numbers {
                    *m = momentum.mul_add(*m, *g);
                    *w = (-self.learning_rate).mul_add(*m, keep * *w);
                }
            }
            OptimiserKind::Adamw | OptimiserKind::AdamCorrected => {
                let adam = Adam {
                    betas,
                    epsilon,
                    keep,
                    step_size: self.learning_rate / self.corrections.0,
                    second_correction: 1.0 / self.corrections.1,
                };
                match self.std {
                    _ if kind == OptimiserKind::Adamw => {
                        for ((w, g), (m, v)) in numbers {
                            adam.step(w, *g, m, v, 0.0);
                        }
                    }
                    Some(std) => {
                        for ((w, g), (m, v)) in numbers {
                            adam.step(w, *g, m, v, std);
                        }
                    }
                    None => {
                        let factor = 1.0 / self.divisor;
                        for (((w, g), (m, v)), std) in numbers.zip(stds) {
                            adam.step(w, *g, m, v, factor * *std);
                        }
                    }
                }
            }
        }
    }
}

/// Adam's update of one coordinate.
#[derive(Clone, Copy)]
struct Adam {
    betas: (f32, f32),
    epsilon: f32,
    keep: f32,
    /// Learning rate over the first moment's bias correction.
    step_size: f32,
    second_correction: f32,
}

impl Adam {
    /// `std` is the standard deviation of the noise whose variance is subtracted from the second
    /// moment.
    #[inline(always)]
    fn step(&self, w: &mut f32, g: f32, m: &mut f32, v: &mut f32, std: f32) {
        // The variance of each step's noise is subtracted in that step: it may change from step to
        // step.
        let variance = std * std;
        *m = self.betas.0.mul_add(*m, (1.0 - self.betas.0) * g);
        *v = self.betas.1.mul_add(*v, (1.0 - self.betas.1) * g.mul_add(g, -variance));
        let floor = variance * CORRECTION_FLOOR * CORRECTION_FLOOR;
        let square = (*v * self.second_correction).max(floor);
        *w = self.keep * *w - self.step_size * *m / (square.sqrt() + self.epsilon);
    }
}
