//! Operations on whole rows, and rotary position embedding, which rotates the pair (j, j + width/2)
//! of each head's features by the angle position · frequency_j.

use super::Wide;
use undertone_tensor::Dropout;

pub fn add(a: &Wide, b: &Wide) -> Wide {
    Wide::from_fn(a.rows, a.columns, |i, j| a[(i, j)] + b[(i, j)])
}

/// (1 − weight) · average + weight · x.
pub fn lerp(average: &Wide, x: &Wide, weight: f64) -> Wide {
    Wide::from_fn(x.rows, x.columns, |i, j| (1.0 - weight) * average[(i, j)] + weight * x[(i, j)])
}

/// a ⊙ b.
pub fn multiply(a: &Wide, b: &Wide) -> Wide {
    Wide::from_fn(a.rows, a.columns, |i, j| a[(i, j)] * b[(i, j)])
}

pub fn scale_rows(x: &Wide, factors: &[f32]) -> Wide {
    Wide::from_fn(x.rows, x.columns, |i, j| f64::from(factors[i]) * x[(i, j)])
}

pub fn scale_columns(x: &Wide, factors: &[f32]) -> Wide {
    Wide::from_fn(x.rows, x.columns, |i, j| f64::from(factors[j]) * x[(i, j)])
}

/// Row i is row `indices[i]` of the table.
pub fn gather(table: &Wide, indices: &[u32]) -> Wide {
    Wide::from_fn(indices.len(), table.columns, |i, j| table[(indices[i] as usize, j)])
}

/// Adds row i of x to row `indices[i]`.
pub fn scatter_onto(mut onto: Wide, x: &Wide, indices: &[u32]) -> Wide {
    for (i, &index) in indices.iter().enumerate() {
        (0..x.columns).for_each(|j| onto[(index as usize, j)] += x[(i, j)]);
    }
    onto
}

pub fn column_sums(x: &Wide) -> Wide {
    Wide::from_fn(1, x.columns, |_, j| (0..x.rows).map(|i| x[(i, j)]).sum())
}

/// x ⊙ mask.
pub fn drop_out(dropout: Dropout, x: &Wide) -> Wide {
    Wide::from_fn(x.rows, x.columns, |i, j| {
        f64::from(dropout.factor((i * x.columns + j) as u32)) * x[(i, j)]
    })
}

/// Rotates the heads in the leading columns. Angles are products of `f32`, as in transformers.
pub fn rotate(x: &Wide, columns: usize, frequencies: &[f32], positions: &[u32]) -> Wide {
    let half = frequencies.len();
    Wide::from_fn(x.rows, x.columns, |i, column| {
        if column >= columns {
            return x[(i, column)];
        }
        let (first, feature) = (column / (2 * half) * 2 * half, column % (2 * half));
        let j = feature % half;
        let (sine, cosine) = f64::from(positions[i] as f32 * frequencies[j]).sin_cos();
        let (low, high) = (x[(i, first + j)], x[(i, first + j + half)]);
        if feature < half { low * cosine - high * sine } else { high * cosine + low * sine }
    })
}
