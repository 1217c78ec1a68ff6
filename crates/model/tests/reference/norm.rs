//! LayerNorm: x̂ = (x − mean(x)) · r with r = 1/√(variance(x) + ε); RMSNorm: x̂ = x · r with r =
//! 1/√(mean(x²) + ε); y = γ ⊙ x̂ + β. For n columns,
//!
//! ∂x̂_j/∂x_i = r (δ_ij − 1/n − x̂_i x̂_j / n), without the 1/n for RMSNorm.

use super::Wide;
use undertone_tensor::NormKind;

/// y, x̂, and r of each row.
pub fn forward(
    kind: NormKind,
    x: &Wide,
    residual: Option<&Wide>,
    weight: &Wide,
    bias: &Wide,
    epsilon: f64,
) -> (Wide, Wide, Vec<f64>) {
    let n = x.columns as f64;
    let mut hat = x.clone();
    let mut inverse = Vec::new();
    for i in 0..x.rows {
        for j in 0..x.columns {
            hat[(i, j)] += residual.map_or(0.0, |residual| residual[(i, j)]);
        }
        if kind == NormKind::Layer {
            let mean = hat.row(i).iter().sum::<f64>() / n;
            (0..x.columns).for_each(|j| hat[(i, j)] -= mean);
        }
        let r = 1.0 / (hat.row(i).iter().map(|x| x * x).sum::<f64>() / n + epsilon).sqrt();
        (0..x.columns).for_each(|j| hat[(i, j)] *= r);
        inverse.push(r);
    }
    let output =
        Wide::from_fn(x.rows, x.columns, |i, j| weight[(0, j)] * hat[(i, j)] + bias[(0, j)]);
    (output, hat, inverse)
}

/// dx_i = Σ_j γ_j dy_j ∂x̂_j/∂x_i.
pub fn backward(kind: NormKind, hat: &Wide, inverse: &[f64], weight: &Wide, dy: &Wide) -> Wide {
    let n = hat.columns as f64;
    let mean = if kind == NormKind::Layer { 1.0 / n } else { 0.0 };
    Wide::from_fn(hat.rows, hat.columns, |row, i| {
        let slope = |j: usize| {
            let same = if i == j { 1.0 } else { 0.0 };
            inverse[row] * (same - mean - hat[(row, i)] * hat[(row, j)] / n)
        };
        (0..hat.columns).map(|j| weight[(0, j)] * dy[(row, j)] * slope(j)).sum()
    })
}
