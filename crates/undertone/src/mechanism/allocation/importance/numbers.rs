//! The arithmetic of importance: sensitivity of a gradient, and weights from importance.

use super::{Deviations, ImportanceSettings};
use crate::tensor::cpu::simd::widest;

/// S = √max(g² − s², 0) · |ω|.
pub(super) fn sensitivity(
    gradient: &[f32],
    values: &[f32],
    noise: Option<Deviations>,
    start: usize,
    out: &mut [f32],
) {
    match noise {
        None => out.fill(0.0),
        Some(noise) => noise(start, out),
    }
    widest(
        #[inline(always)]
        || {
            for ((out, g), w) in out.iter_mut().zip(gradient).zip(values) {
                *out = g.mul_add(*g, -(*out * *out)).max(0.0).sqrt() * w.abs();
            }
        },
    );
}

/// q₁ − q₂ of some numbers; 0 if they are all the same.
pub(super) fn distance(numbers: &mut [f32], quantiles: (f64, f64)) -> f32 {
    if numbers.is_empty() {
        return 0.0;
    }
    let last = (numbers.len() - 1) as f64;
    let mut at = |q: f64| *numbers.select_nth_unstable_by((last * q).round() as usize, f32::total_cmp).1;
    (at(quantiles.0) - at(quantiles.1)).abs()
}

/// Equations 6 and 7, clamped.
#[inline(always)]
pub(super) fn weight(
    settings: &ImportanceSettings,
    importance: f32,
    mean: f32,
    unit: f32,
    range: (f32, f32),
) -> f32 {
    let w = 1.0 + (1.0 - settings.alpha) * (importance - mean) / unit;
    // Neither a unit of 0 nor an overflow may make a NaN: what compares with nothing gets weight 1.
    if w.is_nan() { 1.0 } else { w.clamp(range.0, range.1) }
}

/// Equations 6 and 7 for a few numbers, clamped and brought to mean 1.
pub(super) fn normalised(settings: &ImportanceSettings, importance: &[f32], range: (f32, f32)) -> Vec<f32> {
    let count = importance.len().max(1) as f32;
    let mean = importance.iter().sum::<f32>() / count;
    let unit = distance(&mut importance.to_vec(), settings.quantiles);
    let mut weights: Vec<f32> = importance.iter().map(|&i| weight(settings, i, mean, unit, range)).collect();
    let mean = weights.iter().sum::<f32>() / count;
    weights.iter_mut().for_each(|w| *w /= mean);
    weights
}
