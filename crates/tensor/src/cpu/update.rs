//! Noise and optimizer in one pass: a chunk's sum, weights and moments stay in cache.

use super::super::update::{CORRECTION_FLOOR, ParameterUpdate, Rule, Stds, UpdateState};
use super::simd::widest;
use crate::Host;
use crate::noise::NOISE_BLOCK;
use rayon::prelude::*;

/// Coordinates per parallel task.
const CHUNK: usize = 32 * NOISE_BLOCK;

pub(super) fn release_and_update(
    mut state: UpdateState<Host>,
    update: &ParameterUpdate,
) -> UpdateState<Host> {
    let UpdateState { sum, value, first, second } = &mut state;
    let numbers =
        sum.values_mut().par_chunks_mut(CHUNK).zip(value.values_mut().par_chunks_mut(CHUNK));
    let memory =
        first.values_mut().par_chunks_mut(CHUNK).zip(second.values_mut().par_chunks_mut(CHUNK));
    let all = numbers.zip(memory).enumerate();
    all.for_each_init(Vec::new, |stds, (i, ((sum, value), (first, second)))| {
        release(update, i * CHUNK, sum, stds);
        widest(
            #[inline(always)]
            || apply(update, value, sum, stds, first, second),
        );
    });
    state
}

/// Turns the sum of the coordinates starting at `start` into their released gradient. If the
/// noise's standard deviation differs between coordinates, the values before the division are left
/// in `stds`.
fn release(update: &ParameterUpdate, start: usize, values: &mut [f32], stds: &mut Vec<f32>) {
    let factor = 1.0 / update.divisor;
    let Some(noise) = &update.noise else {
        return widest(
            #[inline(always)]
            || values.iter_mut().for_each(|value| *value *= factor),
        );
    };
    let first = noise.first + start as u64;
    match noise.stds {
        Stds::Same(std) => noise.noise.add(noise.step, first, std, factor, values),
        each @ (Stds::Each(_) | Stds::Product { .. }) => {
            stds.resize(values.len(), 0.0);
            each.write(start, stds);
            noise.noise.add_each(noise.step, first, stds, factor, values);
        }
    }
}

/// `stds` are the standard deviations of the noise in each coordinate of the sum, if they differ.
#[inline(always)]
fn apply(
    update: &ParameterUpdate,
    weights: &mut [f32],
    gradient: &[f32],
    stds: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    let keep = 1.0 - update.learning_rate * update.decay;
    let numbers = weights.iter_mut().zip(gradient).zip(first.iter_mut().zip(second));
    match update.rule {
        Rule::Sgd { momentum } => {
            for ((w, g), (m, _)) in numbers {
                *m = momentum.mul_add(*m, *g);
                *w = (-update.learning_rate).mul_add(*m, keep * *w);
            }
        }
        Rule::Adam { betas, epsilon, corrections, corrected } => {
            let adam = Adam {
                betas,
                epsilon,
                keep,
                step_size: update.learning_rate / corrections.0,
                second_correction: 1.0 / corrections.1,
            };
            match update.gradient_std {
                _ if !corrected => {
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
                    let factor = 1.0 / update.divisor;
                    for (((w, g), (m, v)), std) in numbers.zip(stds) {
                        adam.step(w, *g, m, v, factor * *std);
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
    /// Learning rate divided by the first moment's bias correction.
    step_size: f32,
    second_correction: f32,
}

impl Adam {
    /// `std` is the standard deviation of the noise whose variance is subtracted from the second
    /// moment.
    #[inline(always)]
    fn step(&self, w: &mut f32, g: f32, m: &mut f32, v: &mut f32, std: f32) {
        // Each step subtracts the variance of its own noise, which may change from step to step.
        let variance = std * std;
        *m = self.betas.0.mul_add(*m, (1.0 - self.betas.0) * g);
        *v = self.betas.1.mul_add(*v, (1.0 - self.betas.1) * g.mul_add(g, -variance));
        let floor = variance * CORRECTION_FLOOR * CORRECTION_FLOOR;
        let square = (*v * self.second_correction).max(floor);
        *w = self.keep * *w - self.step_size * *m / (square.sqrt() + self.epsilon);
    }
}
