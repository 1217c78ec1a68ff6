//! Computes weights from mean squares of gradients, w ∝ E[g²]^(−exponent).

use super::Squares;
use crate::gradient::Weights;
use std::sync::Arc;
use undertone_run::AdaclipSection;

/// Weights of one parameter: that of the tensor relative to all tensors, and those of rows and
/// columns within it.
struct Relative {
    tensor: f64,
    rows: Vec<f64>,
    columns: Vec<f64>,
}

/// The weight of a mean square relative to another mean square, clamped to a range.
fn factor(exponent: f64, square: f64, relative_to: f64, range: (f64, f64)) -> f64 {
    (square / relative_to).max(1e-12).powf(-exponent).clamp(range.0, range.1)
}

fn range_of(settings: &AdaclipSection) -> (f64, f64) {
    (f64::from(settings.range.0), f64::from(settings.range.1))
}

/// Weights of rows and columns; `None` if all gradients are zero.
pub(super) fn factored(
    settings: &AdaclipSection,
    squares: &[Option<Squares>],
) -> Option<Vec<Option<Weights>>> {
    let mean = |numbers: &[f32]| {
        numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / numbers.len().max(1) as f64
    };
    // E[g²] over all coordinates, the reference for the tensors.
    let count = |s: &Squares| (s.rows.len() * s.columns.len()) as f64;
    let all: f64 = squares.iter().flatten().map(count).sum();
    let whole = squares.iter().flatten().map(|s| count(s) * mean(&s.rows).max(0.0)).sum::<f64>()
        / all.max(1.0);
    if whole.is_nan() || whole <= 0.0 {
        return None;
    }
    let (exponent, range) = (settings.exponent, range_of(settings));
    // Rows and columns each use the fourth root of the tensors' range.
    let inner = (range.0.powf(0.25), range.1.powf(0.25));
    let mut weights: Vec<Option<Relative>> = Vec::with_capacity(squares.len());
    let mut sum = 0.0;
    for squares in squares {
        let Some(squares) = squares else {
            weights.push(None);
            continue;
        };
        let own = mean(&squares.rows).max(0.0);
        let tensor = factor(exponent, own, whole, range);
        let side = |numbers: &[f32]| -> Vec<f64> {
            let weight = |x: &f32| match own > 0.0 {
                true => factor(exponent, f64::from(*x), own, inner),
                false => 1.0,
            };
            let weights: Vec<f64> = numbers.iter().map(weight).collect();
            let mean = weights.iter().sum::<f64>() / weights.len().max(1) as f64;
            weights.into_iter().map(|w| w / mean).collect()
        };
        sum += tensor * count(squares);
        let (rows, columns) = (side(&squares.rows), side(&squares.columns));
        weights.push(Some(Relative { tensor, rows, columns }));
    }
    let scale = all / sum;
    let of = |Relative { tensor, rows, columns }: &Relative| Weights::Factored {
        rows: rows.iter().map(|w| (scale * tensor * w) as f32).collect(),
        columns: columns.iter().map(|&w| w as f32).collect(),
    };
    Some(weights.iter().map(|weights| weights.as_ref().map(of)).collect())
}

/// Weights of all coordinates, from the sum of g² of each; `None` if all gradients are zero.
pub(super) fn by_element(
    settings: &AdaclipSection,
    squares: &[Option<(Vec<f64>, usize)>],
) -> Option<Vec<Option<Weights>>> {
    let coordinates = || squares.iter().flatten().flat_map(|(squares, _)| squares);
    let all = coordinates().count() as f64;
    let whole = coordinates().sum::<f64>() / all.max(1.0);
    if whole.is_nan() || whole <= 0.0 {
        return None;
    }
    let range = range_of(settings);
    let weight = |&square: &f64| factor(settings.exponent, square, whole, range);
    let scale = (all / coordinates().map(weight).sum::<f64>()) as f32;
    let of = |(squares, columns): &(Vec<f64>, usize)| {
        let values: Vec<f32> = squares.iter().map(|square| weight(square) as f32).collect();
        let largest = values.iter().copied().fold(0.0, f32::max);
        Weights::Elements { values: Arc::new(values.into()), scale, largest, columns: *columns }
    };
    Some(squares.iter().map(|squares| squares.as_ref().map(of)).collect())
}
