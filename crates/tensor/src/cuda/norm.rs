//! LayerNorm and RMSNorm.

use super::format::NumberFormat;
use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::source::Source;
use crate::error::Result;
use crate::{NormKind, Normalized};

/// Normalizes `x`, or `x + residual`.
pub fn forward(
    kind: NormKind,
    x: &CudaMatrix,
    residual: Option<&CudaMatrix>,
    weight: &CudaMatrix,
    bias: Option<&CudaMatrix>,
    epsilon: f32,
) -> Result<Normalized<CudaMatrix>> {
    let (gpu, rows, columns) = (x.gpu(), x.rows(), x.columns());
    let (output, normalized) = (x.like(rows, columns)?, x.like(rows, columns)?);
    let inverse_std = x.like_f32(rows, 1)?;
    let residual = residual.map(|residual| residual.in_format(x.format())).transpose()?;
    let residual = residual.as_ref();
    let weight = &weight.in_format(NumberFormat::F32)?;
    let bias = bias.map(|bias| bias.in_format(NumberFormat::F32)).transpose()?;
    let bias = bias.as_ref();
    let arguments = arguments![
        kind == NormKind::Layer,
        x,
        x.stride(),
        residual,
        residual.map_or(0, CudaMatrix::stride),
        weight,
        kind.offset(),
        bias,
        epsilon,
        &output,
        &normalized,
        &inverse_std,
        rows,
        columns,
    ];
    let kernel = Source::Norm(x.format()).kernel("norm_forward");
    // SAFETY: x, residual and both outputs have these rows and columns, weight and bias are rows
    // with this many columns; the outputs are new.
    unsafe { gpu.launch(kernel, Grid::packed_rows(rows, columns, x.format()), arguments)? };
    Ok(Normalized { output, normalized, inverse_std })
}

/// Gradient with respect to the input and to the residual.
pub fn backward(
    kind: NormKind,
    normalized: &CudaMatrix,
    inverse_std: &CudaMatrix,
    weight: &CudaMatrix,
    output_gradient: &CudaMatrix,
) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (normalized.gpu(), normalized.rows(), normalized.columns());
    let gradient = normalized.like(rows, columns)?;
    let output_gradient = &output_gradient.in_format(normalized.format())?;
    let weight = &weight.in_format(NumberFormat::F32)?;
    let inverse_std = &inverse_std.in_format(NumberFormat::F32)?;
    // One value per row, stored as a column or as a row.
    let inverse_stride = if inverse_std.columns() == 1 { inverse_std.stride() } else { 1 };
    let arguments = arguments![
        kind == NormKind::Layer,
        normalized,
        normalized.stride(),
        inverse_std,
        inverse_stride,
        weight,
        kind.offset(),
        output_gradient,
        output_gradient.stride(),
        &gradient,
        rows,
        columns,
    ];
    let kernel = Source::Norm(normalized.format()).kernel("norm_backward");
    let grid = Grid::packed_rows(rows, columns, normalized.format());
    // SAFETY: both operands have these rows and columns, the weight is a row with this many
    // columns, and there is an inverse standard deviation for each row; the gradient is new.
    unsafe { gpu.launch(kernel, grid, arguments)? };
    Ok(gradient)
}
