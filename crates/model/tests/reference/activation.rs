//! GELU: x Φ(x); its approximation: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))); SiLU: x / (1 +
//! e⁻ˣ); ReLU: max(x, 0); tanh. Derivatives are central differences, which are accurate to 1e-10
//! here.

use super::Wide;
use undertone_tensor::Activation;

pub fn value(kind: Activation, x: f64) -> f64 {
    match kind {
        Activation::Gelu => x * normal_distribution(x),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Relu => x.max(0.0),
        Activation::Tanh => x.tanh(),
    }
}

pub fn derivative(kind: Activation, x: f64) -> f64 {
    if kind == Activation::Relu {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let step = 1e-5;
    (value(kind, x + step) - value(kind, x - step)) / (2.0 * step)
}

/// f(x).
pub fn forward(kind: Activation, x: &Wide) -> Wide {
    Wide::from_fn(x.rows, x.columns, |i, j| value(kind, x[(i, j)]))
}

/// f′(x) ⊙ dy.
pub fn backward(kind: Activation, x: &Wide, dy: &Wide) -> Wide {
    Wide::from_fn(x.rows, x.columns, |i, j| derivative(kind, x[(i, j)]) * dy[(i, j)])
}

/// Φ(x) = 1/2 + φ(x) Σ_k x^(2k+1) / (1 · 3 · … · (2k+1)).
fn normal_distribution(x: f64) -> f64 {
    if x.abs() > 10.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut term, mut sum) = (x, x);
    for k in 1..400 {
        term *= x * x / f64::from(2 * k + 1);
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}
