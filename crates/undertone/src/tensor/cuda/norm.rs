//! LayerNorm and RMSNorm.

use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::source::Source;
use crate::tensor::error::Result;
use crate::tensor::{NormKind, Normalised};

/// Normalises `x`, or `x + residual`.
pub fn forward(
    kind: NormKind,
    x: &CudaMatrix,
    residual: Option<&CudaMatrix>,
    weight: &CudaMatrix,
    bias: Option<&CudaMatrix>,
    epsilon: f32,
) -> Result<Normalised<CudaMatrix>> {
    let (gpu, rows, columns) = (x.gpu(), x.rows(), x.columns());
    let output = CudaMatrix::new(gpu, rows, columns)?;
    let normalised = CudaMatrix::new(gpu, rows, columns)?;
    let inverse_std = CudaMatrix::new(gpu, rows, 1)?;
    let arguments = arguments![
        kind == NormKind::Layer,
        x,
        x.stride(),
        residual,
        residual.map_or(0, CudaMatrix::stride),
        weight,
        bias,
        epsilon,
        &output,
        &normalised,
        &inverse_std,
        columns,
    ];
    // SAFETY: x, residual and both outputs have these rows and columns, weight and bias are rows of
    // as many columns; the outputs are new.
    unsafe { gpu.launch(Source::Norm.kernel("norm_forward"), Grid::wide_rows(rows), arguments)? };
    Ok(Normalised { output, normalised, inverse_std })
}

/// Gradient of the input, and of the residual.
pub fn backward(
    kind: NormKind,
    normalised: &CudaMatrix,
    inverse_std: &CudaMatrix,
    weight: &CudaMatrix,
    output_gradient: &CudaMatrix,
) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (normalised.gpu(), normalised.rows(), normalised.columns());
    let gradient = CudaMatrix::new(gpu, rows, columns)?;
    // One number for each row, as a column or as a row.
    let inverse_stride = if inverse_std.columns() == 1 { inverse_std.stride() } else { 1 };
    let arguments = arguments![
        kind == NormKind::Layer,
        normalised,
        normalised.stride(),
        inverse_std,
        inverse_stride,
        weight,
        output_gradient,
        output_gradient.stride(),
        &gradient,
        columns,
    ];
    // SAFETY: both operands have these rows and columns, the weight is a row of as many columns,
    // there is an inverse standard deviation for each row; the gradient is new.
    unsafe { gpu.launch(Source::Norm.kernel("norm_backward"), Grid::wide_rows(rows), arguments)? };
    Ok(gradient)
}
