//! Activation functions and their derivatives, elementwise.

use super::parallel;
use super::simd::{normal, sigmoid, tanh};
use crate::{Activation, Host};

const SQRT_2_OVER_PI: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

impl Activation {
    #[inline(always)]
    fn value(self, x: f32) -> f32 {
        match self {
            Self::Gelu => x * normal(x).0,
            Self::GeluTanh => 0.5 * x * (1.0 + tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x))),
            Self::Silu => x * sigmoid(x),
            Self::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Self::Tanh => tanh(x),
        }
    }

    #[inline(always)]
    fn derivative(self, x: f32) -> f32 {
        match self {
            Self::Gelu => {
                let (distribution, density) = normal(x);
                x.mul_add(density, distribution)
            }
            Self::GeluTanh => {
                let t = tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x));
                let inner = SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * x * x);
                0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
            }
            Self::Silu => {
                let s = sigmoid(x);
                s * (1.0 + x * (1.0 - s))
            }
            Self::Relu => {
                if x > 0.0 {
                    1.0
                } else {
                    0.0
                }
            }
            Self::Tanh => {
                let t = tanh(x);
                1.0 - t * t
            }
        }
    }
}

/// Evaluates `$body` with the activation as a constant, so that the match happens outside the loop.
macro_rules! for_each_kind {
    ($kind:expr, $f:ident => $body:expr) => {
        match $kind {
            Activation::Gelu => {
                const $f: Activation = Activation::Gelu;
                $body
            }
            Activation::GeluTanh => {
                const $f: Activation = Activation::GeluTanh;
                $body
            }
            Activation::Silu => {
                const $f: Activation = Activation::Silu;
                $body
            }
            Activation::Relu => {
                const $f: Activation = Activation::Relu;
                $body
            }
            Activation::Tanh => {
                const $f: Activation = Activation::Tanh;
                $body
            }
        }
    };
}

/// f(x).
pub fn forward(kind: Activation, x: &Host) -> Host {
    let columns = x.columns();
    Host::build(x.rows(), columns, |out| {
        for_each_kind!(kind, F => parallel::rows(out, columns, #[inline(always)] |first, out| {
            for (i, out) in out.chunks_exact_mut(columns).enumerate() {
                for (y, x) in out.iter_mut().zip(x.row(first + i)) {
                    *y = F.value(*x);
                }
            }
        }))
    })
}

/// f′(x) · dy.
pub fn backward(kind: Activation, x: &Host, output_gradient: &Host) -> Host {
    let columns = x.columns();
    Host::build(x.rows(), columns, |out| {
        for_each_kind!(kind, F => parallel::rows(out, columns, #[inline(always)] |first, out| {
            for (i, out) in out.chunks_exact_mut(columns).enumerate() {
                let (x, dy) = (x.row(first + i), output_gradient.row(first + i));
                for ((d, x), dy) in out.iter_mut().zip(x).zip(dy) {
                    *d = F.derivative(*x) * dy;
                }
            }
        }))
    })
}

/// f(gate) · up, the gated linear unit of Llama.
pub fn gated_forward(kind: Activation, gate: &Host, up: &Host) -> Host {
    let columns = gate.columns();
    Host::build(gate.rows(), columns, |out| {
        for_each_kind!(kind, F => parallel::rows(out, columns, #[inline(always)] |first, out| {
            for (i, out) in out.chunks_exact_mut(columns).enumerate() {
                for ((y, g), u) in out.iter_mut().zip(gate.row(first + i)).zip(up.row(first + i)) {
                    *y = F.value(*g) * u;
                }
            }
        }))
    })
}

/// Gradients with respect to `gate` and `up`.
pub fn gated_backward(
    kind: Activation,
    gate: &Host,
    up: &Host,
    output_gradient: &Host,
) -> (Host, Host) {
    let (rows, columns) = (gate.rows(), gate.columns());
    let mut up_gradient = Host::build(rows, columns, |_| {});
    let gate_gradient = Host::build(rows, columns, |dgate| {
        let dup = up_gradient.values_mut();
        let (a, b) = ((dgate, columns), (dup, columns));
        for_each_kind!(kind, F => parallel::rows2(a, b, #[inline(always)] |first, dgate, dup| {
            let rows = dgate.chunks_exact_mut(columns).zip(dup.chunks_exact_mut(columns));
            for (i, (dgate, dup)) in rows.enumerate() {
                let row = first + i;
                let (gate, up, dy) = (gate.row(row), up.row(row), output_gradient.row(row));
                for j in 0..columns {
                    dgate[j] = F.derivative(gate[j]) * up[j] * dy[j];
                    dup[j] = F.value(gate[j]) * dy[j];
                }
            }
        }))
    });
    (gate_gradient, up_gradient)
}
