//! Softmax: p_j = e^(x_j) / Σ_k e^(x_k). Cross-entropy of target t: −ln p_t, whose gradient is p
//! minus 1 at t.

use super::Wide;

pub fn softmax(x: &Wide) -> Wide {
    let mut p = Wide::zeros(x.rows, x.columns);
    for i in 0..x.rows {
        let largest = x.row(i).iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = x.row(i).iter().map(|x| (x - largest).exp()).sum();
        (0..x.columns).for_each(|j| p[(i, j)] = (x[(i, j)] - largest).exp() / total);
    }
    p
}

/// The loss of each row, and the gradient of Σ weightᵢ · lossᵢ.
pub fn cross_entropy(x: &Wide, targets: &[u32], weights: &[f32]) -> (Vec<f32>, Wide) {
    let p = softmax(x);
    let losses = targets.iter().enumerate().map(|(i, &t)| -p[(i, t as usize)].ln() as f32);
    let gradient = Wide::from_fn(x.rows, x.columns, |i, j| {
        let target = if targets[i] as usize == j { 1.0 } else { 0.0 };
        f64::from(weights[i]) * (p[(i, j)] - target)
    });
    (losses.collect(), gradient)
}
