//! Frozen weights in NF4 on a GPU: four bits per value, expanded before a product.
//!
//! A buffer holds the parts of an [`Nf4`], each starting at a multiple of 16 bytes: the codes, the
//! scales of blocks, and the smallest scale and the step of each group of blocks. The number of
//! values comes first.

use super::device::Gpu;
use super::format::NumberFormat;
use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::source::Source;
use crate::compact::Nf4;
use crate::error::Result;

/// Alignment of the parts in bytes.
const ALIGNMENT: usize = 16;

/// Copies the weights to the GPU.
pub fn upload(gpu: &'static Gpu, nf4: &Nf4) -> Result<Buffer> {
    let (codes, scales, groups) = nf4.parts();
    let mut bytes =
        Vec::with_capacity(codes.len() + scales.len() + size_of_val(groups) + 4 * ALIGNMENT);
    bytes.extend((nf4.len() as u64).to_le_bytes());
    for part in [codes, scales, bytemuck::cast_slice(groups)] {
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes.extend(part);
    }
    gpu.upload(&bytes)
}

/// Expands rows of a buffer, the first of which starts at index `first`; `stride` is the distance
/// between rows in values.
///
/// # Safety
/// The buffer must have been created by [`upload`] and contain these rows with the target's
/// columns. The target's data must not be shared.
pub unsafe fn expand(
    (buffer, first, stride): (&Buffer, usize, usize),
    target: &CudaMatrix,
) -> Result<()> {
    if target.is_empty() {
        return Ok(());
    }
    let name = match target.format() {
        NumberFormat::F32 => "expand_nf4_f",
        NumberFormat::Bf16 | NumberFormat::Nf4 => "expand_nf4_b",
    };
    let (rows, columns) = (target.rows(), target.columns());
    let arguments = arguments![buffer, first, stride, target, target.stride(), columns];
    // SAFETY: guaranteed by the caller.
    unsafe {
        target.gpu().launch(Source::Convert.kernel(name), Grid::rows(rows, columns), arguments)
    }
}
