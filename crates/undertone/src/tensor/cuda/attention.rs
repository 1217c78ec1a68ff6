//! Scaled dot-product attention over packed sequences.

use super::launch::{Argument, Grid, arguments};
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::source::Source;
use crate::tensor::AttentionShape;
use crate::tensor::error::{Error, Result};

/// Rows of queries or keys of a tile, for heads of at most so many features.
pub fn tile_of(padded_width: usize) -> usize {
    match padded_width {
        0..=64 => 64,
        65..=128 => 32,
        _ => 16,
    }
}

/// The kernels for heads of a width, and how they are launched.
struct Kernels {
    source: Source,
    padded: usize,
    tile: usize,
}

impl Kernels {
    fn new(width: usize) -> Result<Self> {
        let padded = match width {
            0..=32 => 32,
            33..=64 => 64,
            65..=128 => 128,
            129..=256 => 256,
            _ => {
                let problem = format!("heads of {width} features on a GPU: 256 are the most");
                return Err(Error::Unsupported(problem));
            }
        };
        Ok(Self { source: Source::Attention(padded), padded, tile: tile_of(padded) })
    }

    /// A block for each piece and head, with room for so many tiles of rows and of scores.
    fn grid(&self, pieces: usize, heads: usize, tiles: usize, scores: usize) -> Grid {
        let numbers = tiles * self.tile * (self.padded + 1) + scores * self.tile * (self.tile + 1);
        let shared = (numbers * size_of::<f32>()) as u32;
        Grid { blocks: (pieces, heads), threads: (256, 1), shared }
    }

    /// Start and length of its sequence and its own first row, for each tile of rows.
    fn pieces(&self, starts: &[usize]) -> Vec<u32> {
        let mut pieces = Vec::new();
        for window in starts.windows(2) {
            let length = window[1] - window[0];
            for first in (0..length).step_by(self.tile) {
                pieces.extend([window[0] as u32, length as u32, first as u32, 0]);
            }
        }
        pieces
    }
}

/// The arguments that all kernels of attention begin with.
fn shared_arguments(qkv: &CudaMatrix, shape: &AttentionShape, pieces: &Buffer) -> Vec<Argument> {
    let (seed, rate, kept) = shape
        .dropout
        .map_or((0, 0.0, 0.0), |dropout| (dropout.seed, dropout.rate, 1.0 / (1.0 - dropout.rate)));
    arguments![
        qkv,
        qkv.stride(),
        shape.heads,
        shape.key_heads,
        shape.width,
        shape.causal,
        shape.scale(),
        seed,
        rate,
        kept,
        pieces,
    ]
    .to_vec()
}

/// The mixed values [tokens, heads · width] and the log-sum-exp of each row's scores [tokens,
/// heads].
pub fn forward(qkv: &CudaMatrix, shape: &AttentionShape) -> Result<(CudaMatrix, CudaMatrix)> {
    let (gpu, tokens, heads) = (qkv.gpu(), qkv.rows(), shape.heads);
    let kernels = Kernels::new(shape.width)?;
    let output = CudaMatrix::new(gpu, tokens, heads * shape.width)?;
    let log_sums = CudaMatrix::new(gpu, tokens, heads)?;
    let pieces = kernels.pieces(shape.starts);
    let grid = kernels.grid(pieces.len() / 4, heads, 3, 1);
    let pieces = gpu.upload(&pieces)?;
    let mut arguments = shared_arguments(qkv, shape, &pieces);
    arguments.extend_from_slice(arguments![&output, &log_sums]);
    // SAFETY: the pieces cover the tokens, qkv has columns for these heads, and the outputs are new
    // and as large as the kernel writes.
    unsafe { gpu.launch(kernels.source.kernel("attention_forward"), grid, &arguments)? };
    Ok((output, log_sums))
}

/// Gradient of queries, keys and values, side by side as they came.
pub fn backward(
    qkv: &CudaMatrix,
    output: &CudaMatrix,
    log_sums: &CudaMatrix,
    output_gradient: &CudaMatrix,
    shape: &AttentionShape,
) -> Result<CudaMatrix> {
    let (gpu, tokens, heads) = (qkv.gpu(), qkv.rows(), shape.heads);
    let kernels = Kernels::new(shape.width)?;
    let gradient = CudaMatrix::new(gpu, tokens, shape.columns())?;
    let along = CudaMatrix::new(gpu, tokens, heads)?;
    let log_sums = log_sums.dense()?;
    let arguments = arguments![
        output,
        output.stride(),
        output_gradient,
        output_gradient.stride(),
        heads,
        shape.width,
        &along,
    ];
    let kernel = kernels.source.kernel("attention_along");
    let rows = Grid { blocks: (tokens, 1), threads: (128, 1), shared: 0 };
    // SAFETY: output and its gradient have a row for each token and columns for these heads; the
    // sums are new.
    unsafe { gpu.launch(kernel, rows, arguments)? };
    let pieces = kernels.pieces(shape.starts);
    let count = pieces.len() / 4;
    let pieces = gpu.upload(&pieces)?;
    let mut arguments = shared_arguments(qkv, shape, &pieces);
    arguments.extend_from_slice(arguments![
        &log_sums,
        &along,
        output_gradient,
        output_gradient.stride(),
        &gradient,
    ]);
    let queries = kernels.source.kernel("attention_backward_queries");
    let keys = kernels.source.kernel("attention_backward_keys");
    // SAFETY: the pieces cover the tokens, all operands have a row for each of them and columns for
    // these heads, and the gradient is new; the two kernels write different columns of it.
    unsafe {
        gpu.launch(queries, kernels.grid(count, heads, 4, 1), &arguments)?;
        gpu.launch(keys, kernels.grid(count, shape.key_heads, 4, 2), &arguments)?;
    }
    Ok(gradient)
}
