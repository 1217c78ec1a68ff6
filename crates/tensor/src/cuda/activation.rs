//! Activation functions and their derivatives, elementwise.

use super::launch::{Argument, Grid, arguments};
use super::matrix::CudaMatrix;
use super::source::Source;
use crate::Activation;
use crate::error::Result;

/// The numbering that the kernels use.
impl From<Activation> for Argument<'_> {
    fn from(kind: Activation) -> Self {
        let number: usize = match kind {
            Activation::Gelu => 0,
            Activation::GeluTanh => 1,
            Activation::Silu => 2,
            Activation::Relu => 3,
            Activation::Tanh => 4,
        };
        Self::from(number)
    }
}

/// f(x).
pub fn forward(kind: Activation, x: &CudaMatrix) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (x.gpu(), x.rows(), x.columns());
    let y = x.like(rows, columns)?;
    let arguments = arguments![kind, x, x.stride(), &y, columns];
    let kernel = Source::Activation(x.format()).kernel("activate");
    // SAFETY: both have these rows and columns; the output is new.
    unsafe { gpu.launch(kernel, Grid::rows(rows, columns), arguments)? };
    Ok(y)
}

/// f′(x) ⊙ dy.
pub fn backward(
    kind: Activation,
    x: &CudaMatrix,
    output_gradient: &CudaMatrix,
) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (x.gpu(), x.rows(), x.columns());
    let dx = x.like(rows, columns)?;
    let output_gradient = &output_gradient.in_format(x.format())?;
    let arguments =
        arguments![kind, x, x.stride(), output_gradient, output_gradient.stride(), &dx, columns];
    let kernel = Source::Activation(x.format()).kernel("activate_backward");
    // SAFETY: all have these rows and columns; the output is new.
    unsafe { gpu.launch(kernel, Grid::rows(rows, columns), arguments)? };
    Ok(dx)
}

/// c · tanh(x / c).
pub fn soft_cap(x: &CudaMatrix, cap: f32) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (x.gpu(), x.rows(), x.columns());
    let y = x.like(rows, columns)?;
    let arguments = arguments![cap, x, x.stride(), &y, columns];
    let kernel = Source::Activation(x.format()).kernel("soft_cap");
    // SAFETY: both have these rows and columns; the output is new.
    unsafe { gpu.launch(kernel, Grid::rows(rows, columns), arguments)? };
    Ok(y)
}

/// (1 − (y / c)²) ⊙ dy.
pub fn soft_cap_backward(
    capped: &CudaMatrix,
    output_gradient: &CudaMatrix,
    cap: f32,
) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (capped.gpu(), capped.rows(), capped.columns());
    let dx = capped.like(rows, columns)?;
    let output_gradient = &output_gradient.in_format(capped.format())?;
    let arguments = arguments![
        cap,
        capped,
        capped.stride(),
        output_gradient,
        output_gradient.stride(),
        &dx,
        columns,
    ];
    let kernel = Source::Activation(capped.format()).kernel("soft_cap_backward");
    // SAFETY: all have these rows and columns; the output is new.
    unsafe { gpu.launch(kernel, Grid::rows(rows, columns), arguments)? };
    Ok(dx)
}

/// f(gate) ⊙ up.
pub fn gated_forward(kind: Activation, gate: &CudaMatrix, up: &CudaMatrix) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (gate.gpu(), gate.rows(), gate.columns());
    let y = gate.like(rows, columns)?;
    let up = &up.in_format(gate.format())?;
    let arguments = arguments![kind, gate, gate.stride(), up, up.stride(), &y, columns];
    let kernel = Source::Activation(gate.format()).kernel("gate");
    // SAFETY: all have these rows and columns; the output is new.
    unsafe { gpu.launch(kernel, Grid::rows(rows, columns), arguments)? };
    Ok(y)
}

/// Gradients with respect to `gate` and `up`.
pub fn gated_backward(
    kind: Activation,
    gate: &CudaMatrix,
    up: &CudaMatrix,
    output_gradient: &CudaMatrix,
) -> Result<(CudaMatrix, CudaMatrix)> {
    let (gpu, rows, columns) = (gate.gpu(), gate.rows(), gate.columns());
    let of_gate = gate.like(rows, columns)?;
    let of_up = gate.like(rows, columns)?;
    let up = &up.in_format(gate.format())?;
    let output_gradient = &output_gradient.in_format(gate.format())?;
    let arguments = arguments![
        kind,
        gate,
        gate.stride(),
        up,
        up.stride(),
        output_gradient,
        output_gradient.stride(),
        &of_gate,
        &of_up,
        columns,
    ];
    let kernel = Source::Activation(gate.format()).kernel("gate_backward");
    // SAFETY: all have these rows and columns; the outputs are new.
    unsafe { gpu.launch(kernel, Grid::rows(rows, columns), arguments)? };
    Ok((of_gate, of_up))
}
