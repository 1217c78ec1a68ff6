//! Rotary position embedding.

use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::source::Source;
use crate::error::Result;

/// Rotates the heads in the leading `columns` of each row, row `i` by `positions[i]`.
pub fn turn(
    x: CudaMatrix,
    columns: usize,
    frequencies: &[f32],
    positions: &[u32],
    direction: f32,
) -> Result<CudaMatrix> {
    let x = x.exclusive()?;
    let gpu = x.gpu();
    let (speeds, places) = (gpu.constant(frequencies)?, gpu.constant(positions)?);
    let half = frequencies.len();
    let arguments = arguments![&x, x.stride(), columns, &speeds, half, &places, direction];
    let kernel = Source::Rotary(x.format()).kernel("rotate");
    // SAFETY: x has these columns and one position per row, and its data is not shared.
    unsafe { gpu.launch(kernel, Grid::rows(x.rows(), columns / 2), arguments)? };
    Ok(x)
}
