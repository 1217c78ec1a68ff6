//! Leading right singular vectors of a weight, by subspace iteration: initial values of LoRA's A
//! that read the inputs on which the pretrained layer depends most.
//!
//! They are a function of the base model alone, so they cost no privacy.

use crate::Result;
use crate::folder::Random;
use nalgebra::{DMatrix, SymmetricEigen};
use std::ops::Range;
use undertone_tensor::{Matrix, Operand, product};

/// Vectors beyond those that are wanted, which speed up convergence.
const OVERSAMPLING: usize = 8;
/// Number of products with WᵀW.
const ITERATIONS: usize = 8;

/// The `rank` leading right singular vectors of the given outputs of a weight W, as the rows of a
/// row-major `[rank, inputs]`. `factor` is Wᵀ, `[inputs, outputs]`, as the right operand of a
/// product. There must be at least `rank` inputs.
pub(super) fn right_vectors(
    factor: Operand,
    [inputs, outputs]: [usize; 2],
    chosen: &Range<usize>,
    rank: usize,
    random: &mut Random,
) -> Result<Vec<f32>> {
    let count = (rank + OVERSAMPLING).min(inputs);
    let mut rows = random.normal(count * inputs, 1.0);
    orthonormalize(&mut rows, inputs);
    let device = factor.device();
    let on_device = |rows: &[f32], columns: usize| {
        Matrix::from_vec(count, columns, rows.to_vec()).to_device(&device)
    };
    // The vectors times Wᵀ, for the chosen outputs.
    let images = |rows: &[f32]| -> Result<Vec<f32>> {
        let mut images = product(1.0, on_device(rows, inputs)?.plain(), factor)?.to_vec()?;
        for image in images.chunks_exact_mut(outputs) {
            image[..chosen.start].fill(0.0);
            image[chosen.end..].fill(0.0);
        }
        Ok(images)
    };
    for _ in 0..ITERATIONS {
        let mut images = images(&rows)?;
        orthonormalize(&mut images, outputs);
        let back = product(1.0, on_device(&images, outputs)?.plain(), factor.turned(true))?;
        rows = back.to_vec()?;
        orthonormalize(&mut rows, inputs);
    }
    // Within this subspace, the singular vectors are the principal axes of the images.
    let images = DMatrix::from_row_slice(count, outputs, &images(&rows)?).cast::<f64>();
    let axes = SymmetricEigen::new(&images * images.transpose());
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| axes.eigenvalues[b].total_cmp(&axes.eigenvalues[a]));
    let rows = DMatrix::from_row_slice(count, inputs, &rows).cast::<f64>();
    let turned = axes.eigenvectors.transpose() * rows;
    let chosen = order[..rank]
        .iter()
        .flat_map(|&axis| turned.row(axis).iter().copied().collect::<Vec<f64>>());
    Ok(chosen.map(|x| x as f32).collect())
}

/// Makes rows orthonormal (Gram–Schmidt, twice). A row in the span of the earlier ones becomes
/// zero.
fn orthonormalize(rows: &mut [f32], columns: usize) {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    };
    for at in 0..rows.len() / columns {
        let (earlier, rest) = rows.split_at_mut(at * columns);
        let row = &mut rest[..columns];
        let before = dot(row, row).sqrt();
        for _ in 0..2 {
            for other in earlier.chunks_exact(columns) {
                let along = dot(row, other);
                row.iter_mut().zip(other).for_each(|(x, &y)| *x -= (along * f64::from(y)) as f32);
            }
        }
        let norm = dot(row, row).sqrt();
        let scale = if norm > 1e-6 * before { 1.0 / norm } else { 0.0 };
        row.iter_mut().for_each(|x| *x = (f64::from(*x) * scale) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::SVD;

    /// The vectors span the same directions, in the same order, as a full decomposition.
    #[test]
    fn vectors_are_those_of_the_decomposition() {
        let (inputs, outputs, rank) = (24, 40, 4);
        let mut random = Random::new(3, 1.0);
        let mut values = random.normal(outputs * inputs, 0.05);
        // Four directions stand out.
        for axis in 0..rank {
            let (left, right) = (random.normal(outputs, 1.0), random.normal(inputs, 1.0));
            for (row, l) in values.chunks_exact_mut(inputs).zip(&left) {
                let scale = 1.0 / (1.0 + axis as f32);
                row.iter_mut().zip(&right).for_each(|(x, r)| *x += scale * l * r);
            }
        }
        let weight = Matrix::from_vec(outputs, inputs, values.clone());
        for chosen in [0..outputs, 10..30] {
            let own = &values[chosen.start * inputs..chosen.end * inputs];
            let exact = DMatrix::from_row_slice(chosen.len(), inputs, own).cast::<f64>();
            let exact = SVD::new(exact, false, true).v_t.unwrap();
            let factor = weight.transposed();
            let mut random = Random::new(5, 1.0);
            let sizes = [inputs, outputs];
            let vectors = right_vectors(factor, sizes, &chosen, rank, &mut random).unwrap();
            for (axis, vector) in vectors.chunks_exact(inputs).enumerate() {
                let along: f64 =
                    vector.iter().zip(exact.row(axis).iter()).map(|(&a, b)| f64::from(a) * b).sum();
                assert!((along.abs() - 1.0).abs() < 1e-4, "vector {axis} of {chosen:?}: {along}");
            }
        }
    }
}
