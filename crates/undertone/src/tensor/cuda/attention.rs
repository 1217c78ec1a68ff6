//! Scaled dot-product attention over packed sequences.

use super::format::NumberFormat;
use super::launch::{Argument, Grid, arguments};
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::source::Source;
use crate::tensor::AttentionShape;
use crate::tensor::error::{Error, Result};
use undertone_run::Precision;

/// Rows of queries or keys of a tile, for heads of at most so many features.
pub fn tile_of(precision: Precision, padded_width: usize) -> usize {
    match (precision, padded_width) {
        (_, 0..=64) => 64,
        (Precision::F32, 65..=128) => 32,
        (Precision::F32, _) => 16,
        (_, 65..=128) => 64,
        (_, _) => 32,
    }
}

/// The kernels for heads of a width, and how they are launched.
struct Kernels {
    /// Of the products: TF32 only where numbers are f32, and bf16 only where they are.
    precision: Precision,
    source: Source,
    padded: usize,
    tile: usize,
    /// Tokens of the longest sequence.
    longest: usize,
}

/// One of the kernels that have a block for each tile and head.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Forward,
    BackwardQueries,
    BackwardKeys,
}

impl Kernels {
    fn new(qkv: &CudaMatrix, shape: &AttentionShape) -> Result<Self> {
        let precision = match (qkv.format(), qkv.precision()) {
            // Windows and soft-capping are in the kernels of f32 alone.
            _ if !shape.is_plain() => Precision::F32,
            (NumberFormat::Bf16, _) => Precision::Bf16,
            (NumberFormat::F32, Precision::Tf32) => Precision::Tf32,
            (NumberFormat::F32, _) => Precision::F32,
        };
        let width = shape.width;
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
        let lengths = shape.starts.windows(2).map(|window| window[1] - window[0]);
        let longest = lengths.max().unwrap_or_default();
        let source = Source::Attention(precision, padded);
        Ok(Self { precision, source, padded, tile: tile_of(precision, padded), longest })
    }

    /// A block for each piece and head.
    fn grid(&self, pass: Pass, pieces: usize, shape: &AttentionShape) -> Grid {
        let heads = if pass == Pass::BackwardKeys { shape.key_heads } else { shape.heads };
        let (threads, shared) = match self.precision {
            Precision::F32 => (256, self.shared_f32(pass)),
            Precision::Tf32 => (128, self.shared_tf32(pass, shape)),
            Precision::Bf16 => (128, self.shared_bf16(pass, shape)),
        };
        Grid { blocks: (pieces, heads), threads: (threads, 1), shared: shared as u32 }
    }

    /// Bytes of the tiles of rows and of scores that a block keeps.
    fn shared_f32(&self, pass: Pass) -> usize {
        let (tiles, scores) = match pass {
            Pass::Forward => (3, 1),
            Pass::BackwardQueries => (4, 1),
            Pass::BackwardKeys => (4, 2),
        };
        let numbers = tiles * self.tile * (self.padded + 1) + scores * self.tile * (self.tile + 1);
        numbers * size_of::<f32>()
    }

    /// Bytes of the tiles of bf16 that a block keeps: its own rows, and one or two stages of those
    /// that go by.
    fn shared_bf16(&self, pass: Pass, shape: &AttentionShape) -> usize {
        let row = 2 * (self.padded + 8);
        let step = match (pass, self.padded) {
            (Pass::Forward, 0..=128) => 64,
            (Pass::Forward, _) => 32,
            (_, 0..=64) => 64,
            (_, 65..=128) => 32,
            _ => 16,
        };
        match pass {
            Pass::Forward => {
                let stages = if self.longest <= step { 1 } else { 2 };
                row * (self.tile + 2 * stages * step)
            }
            Pass::BackwardQueries => row * (2 * self.tile + 4 * step),
            Pass::BackwardKeys => {
                let once = self.longest <= step && shape.heads == shape.key_heads;
                let stages = if once { 1 } else { 2 };
                let own = 2 * row * self.tile + 2 * self.tile * (step + 8);
                own + stages * (2 * row * step + 8 * step)
            }
        }
    }

    /// Bytes of the tiles of f32 that a block keeps, likewise.
    fn shared_tf32(&self, pass: Pass, shape: &AttentionShape) -> usize {
        let row = 4 * (self.padded + 4);
        let step = match (pass, self.padded) {
            (Pass::Forward, 0..=128) => 32,
            (Pass::Forward, _) => 16,
            (_, 0..=64) => 32,
            _ => 16,
        };
        match pass {
            Pass::Forward => {
                let stages = if self.longest <= step { 1 } else { 2 };
                row * (self.tile + 2 * stages * step)
            }
            Pass::BackwardQueries => {
                let stages = if self.padded <= 128 { 2 } else { 1 };
                row * (2 * self.tile + 2 * stages * step)
            }
            Pass::BackwardKeys => {
                let once = self.longest <= step && shape.heads == shape.key_heads;
                let stages = if self.padded > 128 || once { 1 } else { 2 };
                let slopes = if self.tile > self.padded { 4 * step * (self.tile + 4) } else { 0 };
                row * (2 * self.tile + 2 * stages * step) + slopes
            }
        }
    }

    /// Whether the kernel of keys computes the gradient of queries too.
    fn is_one_tile(&self) -> bool {
        self.precision != Precision::F32 && self.longest <= self.tile
    }

    /// Start and length of its sequence and its own first row, for each tile of rows.
    fn pieces(&self, shape: &AttentionShape) -> Vec<[u32; 4]> {
        let mut pieces = Vec::new();
        for window in shape.starts.windows(2) {
            let length = window[1] - window[0];
            for first in (0..length).step_by(self.tile) {
                pieces.push([window[0] as u32, length as u32, first as u32, 0]);
            }
        }
        // Where later queries see more keys, those with as much to do come together.
        if shape.causal {
            pieces.sort_by_key(|piece| piece[2]);
        }
        pieces
    }
}

/// The arguments that all kernels of attention begin with; those of f32 have two more.
fn shared_arguments<'a>(
    precision: Precision,
    qkv: &'a CudaMatrix,
    shape: &AttentionShape,
    pieces: &'a Buffer,
) -> Vec<Argument<'a>> {
    let window = shape.narrow_window().unwrap_or_default();
    let soft_cap = shape.scores.soft_cap.unwrap_or_default();
    let (seed, rate, kept) = shape
        .dropout
        .map_or((0, 0.0, 0.0), |dropout| (dropout.seed, dropout.rate, 1.0 / (1.0 - dropout.rate)));
    let mut all = arguments![
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
    .to_vec();
    if precision == Precision::F32 {
        all.extend_from_slice(arguments![window, soft_cap]);
    }
    all
}

/// The mixed values [tokens, heads · width] and the log-sum-exp of each row's scores [tokens,
/// heads].
pub fn forward(qkv: &CudaMatrix, shape: &AttentionShape) -> Result<(CudaMatrix, CudaMatrix)> {
    if !shape.is_plain() && qkv.format() != NumberFormat::F32 {
        let (output, log_sums) = forward(&qkv.in_format(NumberFormat::F32)?, shape)?;
        return Ok((output.in_format(qkv.format())?, log_sums));
    }
    let (gpu, tokens, heads) = (qkv.gpu(), qkv.rows(), shape.heads);
    let kernels = Kernels::new(qkv, shape)?;
    let output = qkv.like(tokens, heads * shape.width)?;
    let log_sums = qkv.like_f32(tokens, heads)?;
    let pieces = kernels.pieces(shape);
    let grid = kernels.grid(Pass::Forward, pieces.len(), shape);
    let pieces = gpu.constant(&pieces)?;
    let mut arguments = shared_arguments(kernels.precision, qkv, shape, &pieces);
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
    if !shape.is_plain() && qkv.format() != NumberFormat::F32 {
        let wide = qkv.in_format(NumberFormat::F32)?;
        let gradient = backward(&wide, output, log_sums, output_gradient, shape)?;
        return gradient.in_format(qkv.format());
    }
    let (gpu, tokens, heads) = (qkv.gpu(), qkv.rows(), shape.heads);
    let kernels = Kernels::new(qkv, shape)?;
    let gradient = qkv.like(tokens, shape.columns())?;
    let along = qkv.like_f32(tokens, heads)?;
    let log_sums = log_sums.dense()?;
    let output = &output.in_format(qkv.format())?;
    let output_gradient = &output_gradient.in_format(qkv.format())?;
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
    let pieces = kernels.pieces(shape);
    let count = pieces.len();
    let pieces = gpu.constant(&pieces)?;
    let mut arguments = shared_arguments(kernels.precision, qkv, shape, &pieces);
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
    // these heads, and the gradient is new; each number of it is written by one of the kernels: by
    // tensor cores the kernel of keys writes the gradient of the queries of a sequence of one tile
    // too, and that of queries leaves it alone.
    unsafe {
        if !kernels.is_one_tile() {
            let grid = kernels.grid(Pass::BackwardQueries, count, shape);
            gpu.launch(queries, grid, &arguments)?;
        }
        gpu.launch(keys, kernels.grid(Pass::BackwardKeys, count, shape), &arguments)?;
    }
    Ok(gradient)
}
