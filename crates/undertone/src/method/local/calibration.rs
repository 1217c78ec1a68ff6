//! The best linear estimate of a row, given its noisy release: x̂ = m + Σ (Σ + V)⁻¹ (z − m), with
//! the covariance Σ of rows without noise, estimated from releases, and the known covariance V of
//! the noise (regression calibration).
//!
//! E[y | z] = E[β x | z] = β E[x | z] for whatever is linear in x. So a network that is trained on
//! estimates learns the coefficients of clean rows, where one that is trained on noisy rows learns
//! coefficients shrunk towards 0 (attenuation).

use super::moments::{Known, Moments, eigen};
use nalgebra::DMatrix;

/// Weight, row after row, and bias of the map from releases to estimates.
pub fn calibration(moments: &Moments, known: &Known) -> (Vec<f32>, Vec<f32>) {
    let floor = moments.uncertainty(known);
    let (values, vectors) = eigen(moments.covariance(known));
    // Eigenvalues within the uncertainty are taken for noise.
    let kept: Vec<f64> = values.iter().map(|v| if *v > floor { *v } else { 0.0 }).collect();
    let rows = &vectors * DMatrix::from_diagonal(&kept.into()) * vectors.transpose();
    let width = moments.width();
    let noisy = &rows + DMatrix::from_diagonal(&known.variances.clone().into());
    let guess = noisy
        .cholesky()
        .map_or_else(|| DMatrix::zeros(width, width), |found| found.solve(&rows))
        .transpose();
    let mean = moments.mean();
    let bias = &mean - &guess * &mean;
    let weight =
        (0..width).flat_map(|i| guess.row(i).iter().map(|&x| x as f32).collect::<Vec<_>>());
    (weight.collect(), bias.iter().map(|&x| x as f32).collect())
}
