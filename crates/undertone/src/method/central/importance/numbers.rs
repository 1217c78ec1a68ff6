//! The arithmetic of importance: sensitivity of a gradient, and weights from importance.

use super::ImportanceSettings;
use crate::tensor::simd::inverse_root;

/// Calls `take` with each item of `with` and the sensitivity S = √max(g² − s², 0) · |ω| of its
/// coordinate; s is 0 without noise.
#[inline(always)]
pub(super) fn for_each_sensitivity<T>(
    gradient: &[f32],
    values: &[f32],
    noise: Option<&[f32]>,
    with: impl Iterator<Item = T>,
    mut take: impl FnMut(T, f32),
) {
    let numbers = gradient.iter().zip(values).zip(with);
    match noise {
        None => {
            for ((g, w), with) in numbers {
                take(with, (g * w).abs());
            }
        }
        Some(noise) => {
            for (((g, w), with), s) in numbers.zip(noise) {
                let square = g.mul_add(*g, -(s * s)).max(0.0);
                take(with, square * inverse_root(square) * w.abs());
            }
        }
    }
}

/// Distance q₁ − q₂ between two quantiles; 0 if all numbers are equal. Reorders the numbers.
pub(super) fn distance(numbers: &mut [f32], quantiles: (f64, f64)) -> f32 {
    if numbers.is_empty() {
        return 0.0;
    }
    let last = (numbers.len() - 1) as f64;
    let mut at =
        |q: f64| *numbers.select_nth_unstable_by((last * q).round() as usize, f32::total_cmp).1;
    (at(quantiles.0) - at(quantiles.1)).abs()
}

/// Equations 6 and 7, clamped: maps importance to a weight, before rescaling to mean 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Normalizer {
    mean: f32,
    /// (1−α)/(q₁ − q₂).
    gain: f32,
    range: (f32, f32),
}

impl Normalizer {
    /// Creates a normalizer for importance with this mean and this distance `unit` between its
    /// quantiles.
    pub fn new(settings: &ImportanceSettings, mean: f32, unit: f32, range: (f32, f32)) -> Self {
        Self { mean, gain: (1.0 - settings.alpha) / unit, range }
    }

    /// The weight; it is monotone in the importance, even with rounding.
    #[inline(always)]
    pub fn weight(&self, importance: f32) -> f32 {
        let w = 1.0 + (importance - self.mean) * self.gain;
        // A distance of 0 or an overflow can give NaN, which becomes weight 1.
        let w = if w.is_nan() { 1.0 } else { w };
        // `clamp` may panic, which would prevent the loop from being vectorized.
        w.max(self.range.0).min(self.range.1)
    }

    /// Upper bound on all weights, where `largest` is the largest non-NaN importance and `broken`
    /// indicates whether any importance is not finite.
    pub fn largest(&self, largest: f32, broken: bool) -> f32 {
        if broken { self.range.1.max(1.0) } else { self.weight(largest) }
    }
}

/// Equations 6 and 7 for a small set of numbers, clamped and rescaled to mean 1.
pub(super) fn normalized(
    settings: &ImportanceSettings,
    importance: &[f32],
    range: (f32, f32),
) -> Vec<f32> {
    let count = importance.len().max(1) as f32;
    let mean = importance.iter().sum::<f32>() / count;
    let unit = distance(&mut importance.to_vec(), settings.quantiles);
    let normalizer = Normalizer::new(settings, mean, unit, range);
    let mut weights: Vec<f32> = importance.iter().map(|&i| normalizer.weight(i)).collect();
    let mean = weights.iter().sum::<f32>() / count;
    weights.iter_mut().for_each(|w| *w /= mean);
    weights
}
