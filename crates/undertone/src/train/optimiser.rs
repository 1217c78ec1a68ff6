//! Optimisers: SGD with momentum, AdamW, and AdamW corrected for noise, in the same pass over
//! memory that adds the noise.
//!
//! An optimiser's step is post-processing of the released gradient, so it costs no privacy.

use crate::method::central::no_less;
use crate::method::{GradientRelease, Released};
use crate::model::{Parameter, ParameterId, Parameters};
use crate::tensor::{
    Device, Host, Matrix, NoiseOfRelease, ParameterUpdate, Result, Rule, Stds, UpdateState,
    release_and_update,
};
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

/// An optimiser with its state.
#[derive(Clone, Debug)]
pub struct Optimiser {
    settings: Settings,
    steps: u64,
    moments: Vec<Option<(Matrix, Matrix)>>,
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
    pub fn moments(&self, id: ParameterId) -> Option<(&Matrix, &Matrix)> {
        self.moments[id.index()].as_ref().map(|(first, second)| (first, second))
    }

    /// Restores the state from a checkpoint.
    pub fn restore(&mut self, steps: u64, moments: Vec<(ParameterId, Host, Host)>) {
        self.steps = steps;
        for (id, first, second) in moments {
            self.moments[id.index()] = Some((Matrix::Host(first), Matrix::Host(second)));
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
        let rule = match self.settings.kind {
            OptimiserKind::Sgd => Rule::Sgd { momentum: self.settings.momentum },
            kind @ (OptimiserKind::Adamw | OptimiserKind::AdamCorrected) => Rule::Adam {
                betas: self.settings.betas,
                epsilon: self.settings.epsilon,
                corrections,
                corrected: kind == OptimiserKind::AdamCorrected,
            },
        };
        let stds_of = |id: ParameterId| {
            let (_, allocation) = release.noise?;
            Some(move |start: usize, out: &mut [f32]| allocation.write_stds(id, start, out))
        };
        let write_stds: Vec<_> = trainable.iter().map(|&id| stds_of(id)).collect();
        let factors_of = |&id: &ParameterId| release.noise?.1.std_factors(id);
        let factors: Vec<_> = trainable.iter().map(factors_of).collect();
        let mut updates = Vec::with_capacity(trainable.len());
        for ((&id, write_stds), factors) in trainable.iter().zip(&write_stds).zip(&factors) {
            let noise = match (release.noise, write_stds) {
                (Some((noise, allocation)), Some(write_stds)) => {
                    let each = || match factors {
                        Some((rows, columns)) => Stds::Product { rows, columns },
                        None => Stds::Each(write_stds),
                    };
                    let stds = allocation.std(id).map_or_else(each, |std| Stds::Same(no_less(std)));
                    let first = release.coordinates.first(id);
                    Some(NoiseOfRelease { noise, step: release.step, first, stds })
                }
                _ => None,
            };
            let is_matrix = parameters.get(id).is_matrix();
            updates.push(ParameterUpdate {
                noise,
                divisor: release.divisor,
                gradient_std: release.std(id),
                learning_rate: learning_rate as f32,
                decay: if is_matrix { self.settings.weight_decay } else { 0.0 },
                rule,
            });
        }
        let mut states = Vec::with_capacity(trainable.len());
        for &id in &trainable {
            let sum = sums[id.index()].take();
            let moments = self.moments[id.index()].take();
            states.push(take_state(parameters.get_mut(id), moments, sum)?);
        }
        let mut released = vec![None; parameters.len()];
        for (&id, state) in trainable.iter().zip(release_and_update(states, &updates)?) {
            let UpdateState { sum, value, first, second } = state;
            parameters.get_mut(id).value = value;
            self.moments[id.index()] = Some((first, second));
            released[id.index()] = Some(sum);
        }
        Ok(Released::new(released, release))
    }
}

/// On a device; the matrix that was given is dropped, so that the result is not shared with it.
fn onto(device: &Device, matrix: Matrix) -> Result<Matrix> {
    matrix.to_device(device)
}

/// What is updated. The value is taken out of the parameter, so that it is not shared and is
/// updated in place.
fn take_state(
    parameter: &mut Parameter,
    moments: Option<(Matrix, Matrix)>,
    sum: Option<Matrix>,
) -> Result<UpdateState> {
    let device = parameter.value.device();
    let zeros = || onto(&device, Matrix::zeros(parameter.value.rows(), parameter.value.columns()));
    let sum = sum.map_or_else(zeros, Ok)?;
    let (first, second) = match moments {
        Some((first, second)) => (onto(&device, first)?, onto(&device, second)?),
        None => (zeros()?, zeros()?),
    };
    let value = std::mem::replace(&mut parameter.value, Matrix::zeros(0, 0));
    Ok(UpdateState { sum, value, first, second })
}
