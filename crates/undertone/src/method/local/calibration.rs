//! The best linear estimate of a row given its noisy release: x̂ = m + Σ (Σ + V)⁻¹ (z − m), with
//! the covariance Σ of noise-free rows, estimated from releases, and the known covariance V of the
//! noise (regression calibration).
//!
//! E[y | z] = E[β x | z] = β E[x | z] for every y that is linear in x. So a network trained on
//! estimates learns the coefficients of clean rows, whereas one trained on noisy rows learns
//! coefficients that are shrunk toward 0 (attenuation).

use super::moments::{Known, Moments, eigen};
use nalgebra::DMatrix;

/// Weight, in row-major order, and bias of the map from releases to estimates.
pub fn calibration(moments: &Moments, known: &Known) -> (Vec<f32>, Vec<f32>) {
    let floor = moments.uncertainty(known);
    let (values, vectors) = eigen(moments.covariance(known));
    // Eigenvalues within the uncertainty are treated as noise.
    let kept: Vec<f64> = values.iter().map(|v| if *v > floor { *v } else { 0.0 }).collect();
    let rows = &vectors * DMatrix::from_diagonal(&kept.into()) * vectors.transpose();
    let width = moments.width();
    let noisy = &rows + DMatrix::from_diagonal(&known.variances.clone().into());
    let guess = noisy
        .cholesky()
        .map_or_else(|| DMatrix::zeros(width, width), |decomposition| decomposition.solve(&rows))
        .transpose();
    let mean = moments.mean();
    let bias = &mean - &guess * &mean;
    let weight =
        (0..width).flat_map(|i| guess.row(i).iter().map(|&x| x as f32).collect::<Vec<_>>());
    (weight.collect(), bias.iter().map(|&x| x as f32).collect())
}
