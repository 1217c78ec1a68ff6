//! Weights of the coordinates of a parameter in the gradient norm.

use crate::model::Factor;
use crate::tensor::simd::{inverse_root, widest};
use crate::tensor::{self, CoordinateWeights, Result, write_products};
use std::sync::Arc;

/// A weight w > 0 for each coordinate of a parameter; the norm of a gradient is then (Σ w g²)^½.
#[derive(Clone, Debug, PartialEq)]
pub enum Weights {
    /// w_ij = rows_i · columns_j. Scaling the two factors of a gradient by √rows and √columns
    /// scales the gradient by √w, so no per-example gradient has to be formed.
    Factored {
        /// One weight for each row of the parameter.
        rows: Vec<f32>,
        /// One weight for each column of the parameter.
        columns: Vec<f32>,
    },
    /// One weight for each coordinate, in row-major order, all multiplied by `scale`.
    Elements {
        /// Unscaled weights.
        values: Arc<CoordinateWeights>,
        /// Scales the mean weight over all parameters to 1.
        scale: f32,
        /// The largest unscaled weight.
        largest: f32,
        /// Number of columns of the parameter.
        columns: usize,
    },
}

/// Compensates for the rounding error of `inverse_root`, so that no noise std is too small.
pub const JUST_ABOVE: f32 = 1.0 + 4.0 * f32::EPSILON;

impl Weights {
    /// Writes the weights of the coordinates starting at index `start`.
    pub fn write(&self, start: usize, out: &mut [f32]) {
        match self {
            Self::Elements { values, scale, .. } => {
                let values = &values.values()[start..];
                out.iter_mut().zip(values).for_each(|(out, w)| *out = scale * w);
            }
            Self::Factored { rows, columns } => write_products(rows, columns, start, out),
        }
    }

    /// Writes `factor`/√w for the coordinates starting at index `start`. The values are never too
    /// small, and too large by a relative error of less than 1e-6.
    pub fn write_inverse_roots(&self, factor: f32, start: usize, out: &mut [f32]) {
        widest(
            #[inline(always)]
            || match self {
                Self::Elements { values, scale, .. } => {
                    let factor = factor * JUST_ABOVE;
                    for (out, w) in out.iter_mut().zip(&values.values()[start..]) {
                        *out = factor * inverse_root(scale * w);
                    }
                }
                Self::Factored { rows, columns } => {
                    let (rows, columns) = inverse_roots(factor, rows, columns);
                    write_products(&rows, &columns, start, out);
                }
            },
        );
    }

    /// For factored weights, row and column factors whose products are `factor`/√w, with the same
    /// error bounds.
    pub fn inverse_roots(&self, factor: f32) -> Option<(Vec<f32>, Vec<f32>)> {
        match self {
            Self::Factored { rows, columns } => Some(inverse_roots(factor, rows, columns)),
            Self::Elements { .. } => None,
        }
    }

    /// The largest weight.
    pub fn largest(&self) -> f64 {
        let most = |numbers: &[f32]| f64::from(numbers.iter().copied().fold(0.0, f32::max));
        match self {
            Self::Factored { rows, columns } => most(rows) * most(columns),
            Self::Elements { largest, scale, .. } => f64::from(*scale) * f64::from(*largest),
        }
    }

    /// The mean weight.
    pub fn mean(&self) -> f64 {
        let mean = |numbers: &[f32]| {
            numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / numbers.len().max(1) as f64
        };
        match self {
            Self::Factored { rows, columns } => mean(rows) * mean(columns),
            Self::Elements { values, scale, .. } => f64::from(*scale) * mean(values.values()),
        }
    }

    /// The factors of √w ⊙ G, for factored weights w.
    pub(super) fn scale_factor(rows: &[f32], columns: &[f32], factor: &Factor) -> Result<Factor> {
        let roots = |numbers: &[f32]| -> Vec<f32> { numbers.iter().map(|w| w.sqrt()).collect() };
        let mut scaled = factor.clone();
        match &mut scaled {
            Factor::Product { input, output_gradient, inputs_first, .. } => {
                let (left, right) =
                    if *inputs_first { (input, output_gradient) } else { (output_gradient, input) };
                *left = tensor::scale_columns(left, &roots(rows))?;
                *right = tensor::scale_columns(right, &roots(columns))?;
            }
            Factor::Rows { indices, output_gradient, .. } => {
                let rows = roots(rows);
                let of_rows: Vec<f32> = indices.iter().map(|&index| rows[index as usize]).collect();
                *output_gradient = tensor::scale_columns(output_gradient, &roots(columns))?;
                *output_gradient = tensor::scale_rows(output_gradient, &of_rows)?;
            }
            Factor::Sum { .. } | Factor::Scale { .. } => {}
        }
        Ok(scaled)
    }
}

/// Computes one square root for each row and column instead of one for each coordinate.
fn inverse_roots(factor: f32, rows: &[f32], columns: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let factor = factor * JUST_ABOVE;
    let rows = rows.iter().map(|w| factor / w.sqrt()).collect();
    (rows, columns.iter().map(|w| 1.0 / w.sqrt()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factored_weights_are_written_from_any_coordinate() {
        let weights = Weights::Factored { rows: vec![1.0, 2.0, 3.0], columns: vec![1.0, 10.0] };
        let all = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0];
        for start in 0..6 {
            let mut out = vec![0.0; 6 - start];
            weights.write(start, &mut out);
            assert_eq!(out, all[start..]);
            weights.write_inverse_roots(2.0, start, &mut out);
            for (out, w) in out.iter().zip(&all[start..]) {
                assert!((out - 2.0 / w.sqrt()).abs() < 1e-6, "{out} for {w}");
            }
        }
        assert_eq!((weights.largest(), weights.mean()), (30.0, 11.0));
    }

    #[test]
    fn inverse_roots_are_never_too_small() {
        let values: Vec<f32> = (0..200_000).map(|i| 0.01 + 1e-4 * i as f32).collect();
        let (scale, factor) = (0.731, 0.37);
        let weights = Weights::Elements {
            values: Arc::new(values.clone().into()),
            scale,
            largest: 21.0,
            columns: 1,
        };
        let mut out = vec![0.0; values.len()];
        weights.write_inverse_roots(factor, 0, &mut out);
        for (out, w) in out.iter().zip(values) {
            let want = f64::from(factor) / (f64::from(scale) * f64::from(w)).sqrt();
            let ratio = f64::from(*out) / want;
            assert!((1.0..1.0 + 1e-6).contains(&ratio), "{ratio} for {w}");
        }
    }
}
