//! Cross-entropy and softmax.

use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::source::Source;
use crate::error::Result;

/// The loss of each row. If `weights` are given, also the gradient of Σ weightᵢ · lossᵢ.
pub fn cross_entropy(
    logits: &CudaMatrix,
    targets: &[u32],
    weights: Option<&[f32]>,
) -> Result<(CudaMatrix, Option<CudaMatrix>)> {
    let (gpu, rows, columns) = (logits.gpu(), logits.rows(), logits.columns());
    let losses = logits.like_f32(rows, 1)?;
    let (device, format) = (logits.device(), logits.format());
    let gradient = weights.map(|_| CudaMatrix::new_padded(device, format, rows, columns));
    let gradient = gradient.transpose()?;
    let gradient_stride = gradient.as_ref().map_or(0, CudaMatrix::stride);
    let (targets, weights) = (gpu.upload(targets)?, gpu.upload(weights.unwrap_or_default())?);
    let arguments = arguments![
        logits,
        logits.stride(),
        &targets,
        &weights,
        &losses,
        gradient.as_ref(),
        gradient_stride,
        columns,
    ];
    let kernel = Source::Loss(logits.format()).kernel("cross_entropy");
    // SAFETY: there is one target per row, which is a valid column, and one weight per row if there
    // is a gradient; the outputs are new.
    unsafe { gpu.launch(kernel, Grid::wide_rows(rows), arguments)? };
    Ok((losses, gradient))
}

/// Softmax of each row.
pub fn softmax(logits: &CudaMatrix) -> Result<CudaMatrix> {
    let (gpu, rows, columns) = (logits.gpu(), logits.rows(), logits.columns());
    let y = logits.like(rows, columns)?;
    let kernel = Source::Loss(logits.format()).kernel("softmax");
    let arguments = arguments![logits, logits.stride(), &y, columns];
    // SAFETY: both have these rows and columns; the output is new.
    unsafe { gpu.launch(kernel, Grid::wide_rows(rows), arguments)? };
    Ok(y)
}
