//! Optimizers: SGD with momentum, AdamW, and noise-corrected AdamW. The update runs in the same
//! pass over memory that adds the noise.
//!
//! An optimizer step is post-processing of the released gradient, so it costs no privacy.

use super::allocation::{Allocation, no_less};
use super::release::{GradientRelease, Released};
use crate::collective::{Shards, Slice};
use crate::model::{ParameterId, Parameters};
use crate::tensor::{
    Device, Host, Matrix, NoiseOfRelease, ParameterUpdate, Result, Rule, Stds, UpdateState,
    release_and_update, write_products,
};
use std::collections::BTreeMap;
use undertone_run::OptimizerKind;

/// Hyperparameters of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub kind: OptimizerKind,
    /// Momentum of SGD.
    pub momentum: f32,
    /// β₁ and β₂ of Adam.
    pub betas: (f32, f32),
    /// ε in the denominator of Adam.
    pub epsilon: f32,
    /// Decoupled weight decay, applied to weight matrices only, not to biases and normalization
    /// layers.
    pub weight_decay: f32,
    /// Learning rate of LoRA's B relative to that of all other parameters (LoRA+).
    pub b_rate: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::Adamw,
            momentum: 0.9,
            betas: (0.9, 0.999),
            epsilon: 1e-8,
            weight_decay: 0.01,
            b_rate: 1.0,
        }
    }
}

/// An optimizer with its state.
#[derive(Clone, Debug)]
pub struct Optimizer {
    settings: Settings,
    steps: u64,
    /// First and second moment of each updated slice, by parameter and first coordinate.
    moments: BTreeMap<(ParameterId, usize), Moments>,
}

/// First and second moment.
type Moments = (Matrix, Matrix);

/// The result of updating a [`Slice`].
#[derive(Debug)]
pub(super) struct Updated {
    /// The released gradient.
    pub gradient: Matrix,
    /// The new weights.
    pub value: Matrix,
}

impl Optimizer {
    /// An optimizer before its first step.
    pub fn new(settings: Settings) -> Self {
        Self { settings, steps: 0, moments: BTreeMap::new() }
    }

    /// Number of steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The number of moment values held.
    pub fn state_len(&self) -> usize {
        let len = |matrix: &Matrix| matrix.rows() * matrix.columns();
        self.moments.values().map(|(first, second)| len(first) + len(second)).sum()
    }

    /// First and second moment of a slice, if it has been updated.
    pub fn moments(&self, slice: &Slice) -> Option<(&Matrix, &Matrix)> {
        let (first, second) = self.moments.get(&key(slice))?;
        Some((first, second))
    }

    /// Restores the number of steps from a checkpoint and clears all moments.
    pub(crate) fn restore(&mut self, steps: u64) {
        (self.steps, self.moments) = (steps, BTreeMap::new());
    }

    /// Restores the moments of a slice from a checkpoint.
    pub(crate) fn restore_moments(&mut self, slice: &Slice, first: Host, second: Host) {
        self.moments.insert(key(slice), (Matrix::Host(first), Matrix::Host(second)));
    }

    /// Releases each trainable parameter's sum and updates the parameter. A parameter without a sum
    /// is also released: its release is pure noise.
    pub fn step(
        &mut self,
        parameters: &mut Parameters,
        mut sums: Vec<Option<Matrix>>,
        release: &GradientRelease,
        learning_rate: f64,
    ) -> Result<Released> {
        let slices = Shards::whole(parameters).own();
        let sums = slices.iter().map(|slice| sums[slice.parameter.index()].take()).collect();
        let gradients = self.update_whole(parameters, &slices, sums, release, learning_rate)?;
        Ok(Released::new(gradients, release))
    }

    /// Like [`Self::step`], for slices that are whole parameters. Returns the released gradients,
    /// by parameter.
    pub(super) fn update_whole(
        &mut self,
        parameters: &mut Parameters,
        slices: &[Slice],
        sums: Vec<Option<Matrix>>,
        release: &GradientRelease,
        learning_rate: f64,
    ) -> Result<Vec<Option<Matrix>>> {
        let mut values = Vec::with_capacity(slices.len());
        for slice in slices {
            // Taken out of the parameter so that it is not shared and can be updated in place.
            let value = &mut parameters.get_mut(slice.parameter).value;
            values.push(std::mem::replace(value, Matrix::zeros(0, 0)));
        }
        let updated = self.update(parameters, slices, (values, sums), release, learning_rate)?;
        let mut gradients = vec![None; parameters.len()];
        for (slice, Updated { gradient, value }) in slices.iter().zip(updated) {
            parameters.get_mut(slice.parameter).value = value;
            gradients[slice.parameter.index()] = Some(gradient);
        }
        Ok(gradients)
    }

    /// Releases the sum of each slice, in the slice's shape, and returns the results. The
    /// parameters are left unchanged.
    pub(super) fn update_slices(
        &mut self,
        parameters: &Parameters,
        slices: &[Slice],
        sums: Vec<Option<Matrix>>,
        release: &GradientRelease,
        learning_rate: f64,
    ) -> Result<Vec<Updated>> {
        let value = |slice: &Slice| slice.of(parameters.value(slice.parameter));
        let values = slices.iter().map(value).collect::<Result<Vec<Matrix>>>()?;
        self.update(parameters, slices, (values, sums), release, learning_rate)
    }

    fn update(
        &mut self,
        parameters: &Parameters,
        slices: &[Slice],
        (values, sums): (Vec<Matrix>, Vec<Option<Matrix>>),
        release: &GradientRelease,
        learning_rate: f64,
    ) -> Result<Vec<Updated>> {
        self.steps += 1;
        let rule = self.rule();
        let noises: Vec<SliceNoise> =
            slices.iter().map(|slice| SliceNoise::of(slice, release)).collect();
        let writers: Vec<_> = noises
            .iter()
            .map(|noise| move |start: usize, out: &mut [f32]| noise.write_stds(start, out))
            .collect();
        let mut updates = Vec::with_capacity(slices.len());
        for ((slice, noise), write) in slices.iter().zip(&noises).zip(&writers) {
            let id = slice.parameter;
            let parameter = parameters.get(id);
            let is_matrix = parameter.is_matrix();
            let relative = match parameter.name.ends_with(".lora_B.weight") {
                true => self.settings.b_rate,
                false => 1.0,
            };
            updates.push(ParameterUpdate {
                noise: noise.of_release(release, write),
                divisor: release.divisor,
                gradient_std: release.std(id),
                learning_rate: learning_rate as f32 * relative,
                decay: if is_matrix { self.settings.weight_decay } else { 0.0 },
                rule,
            });
        }
        let mut states = Vec::with_capacity(slices.len());
        for ((slice, value), sum) in slices.iter().zip(values).zip(sums) {
            let moments = self.moments.remove(&key(slice));
            states.push(state(value, moments, sum)?);
        }
        let mut updated = Vec::with_capacity(slices.len());
        for (slice, state) in slices.iter().zip(release_and_update(states, &updates)?) {
            let UpdateState { sum, value, first, second } = state;
            self.moments.insert(key(slice), (first, second));
            updated.push(Updated { gradient: sum, value });
        }
        Ok(updated)
    }

    fn rule(&self) -> Rule {
        let Settings { betas, epsilon, momentum, kind, .. } = self.settings;
        let power = |beta: f32| 1.0 - (f64::from(beta).powf(self.steps as f64)) as f32;
        match kind {
            OptimizerKind::Sgd => Rule::Sgd { momentum },
            OptimizerKind::Adamw | OptimizerKind::AdamCorrected => Rule::Adam {
                betas,
                epsilon,
                corrections: (power(betas.0), power(betas.1)),
                corrected: kind == OptimizerKind::AdamCorrected,
            },
        }
    }
}

fn key(slice: &Slice) -> (ParameterId, usize) {
    (slice.parameter, slice.range.start)
}

/// The noise of a slice. Its stds are those of its parameter, starting at the slice's first
/// coordinate.
struct SliceNoise<'a> {
    slice: &'a Slice,
    allocation: Option<&'a Allocation>,
    /// Stds of rows and columns, if the parameter's stds are products of these.
    factors: Option<(Vec<f32>, Vec<f32>)>,
}

impl<'a> SliceNoise<'a> {
    fn of(slice: &'a Slice, release: &GradientRelease<'a>) -> Self {
        let allocation = release.noise.map(|(_, allocation)| allocation);
        let factors = allocation.and_then(|allocation| allocation.std_factors(slice.parameter));
        Self { slice, allocation, factors }
    }

    fn write_stds(&self, start: usize, out: &mut [f32]) {
        let start = self.slice.range.start + start;
        match (&self.factors, self.allocation) {
            (Some((rows, columns)), _) => write_products(rows, columns, start, out),
            (None, Some(allocation)) => allocation.write_stds(self.slice.parameter, start, out),
            (None, None) => out.fill(0.0),
        }
    }

    fn of_release<'b>(
        &'b self,
        release: &GradientRelease<'b>,
        write: &'b (dyn Fn(usize, &mut [f32]) + Sync),
    ) -> Option<NoiseOfRelease<'b>> {
        let (noise, allocation) = release.noise?;
        let Slice { parameter, range } = self.slice;
        let stds = match (allocation.std(*parameter), &self.factors) {
            (Some(std), _) => Stds::Same(no_less(std)),
            (None, Some((rows, columns))) if rows.len() * columns.len() == range.len() => {
                Stds::Product { rows, columns }
            }
            (None, _) => Stds::Each(write),
        };
        let first = release.coordinates.first(*parameter) + range.start as u64;
        Some(NoiseOfRelease { noise, step: release.step, first, stds })
    }
}

/// Moves a matrix to a device. The given matrix is dropped, so the result is not shared with it.
fn onto(device: &Device, matrix: Matrix) -> Result<Matrix> {
    matrix.to_device(device)
}

/// The state to be updated.
fn state(value: Matrix, moments: Option<Moments>, sum: Option<Matrix>) -> Result<UpdateState> {
    let device = value.device();
    let zeros = || onto(&device, Matrix::zeros(value.rows(), value.columns()));
    let sum = sum.map_or_else(zeros, Ok)?;
    let (first, second) = match moments {
        Some((first, second)) => (onto(&device, first)?, onto(&device, second)?),
        None => (zeros()?, zeros()?),
    };
    Ok(UpdateState { sum, value, first, second })
}
