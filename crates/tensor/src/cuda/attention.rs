//! Scaled dot-product attention over packed sequences.

use super::format::NumberFormat;
use super::launch::{Argument, Grid, arguments};
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::source::Source;
use crate::Precision;
use crate::error::{Error, Result};
use crate::{AttentionShape, Relative, RelativeGradients};
use std::sync::Arc;

/// Rows of queries or keys per tile, for heads of at most `padded_width` features.
pub fn tile_of(precision: Precision, padded_width: usize) -> usize {
    match (precision, padded_width) {
        (_, 0..=64) => 64,
        (Precision::F32, 65..=128) => 32,
        (Precision::F32, _) => 16,
        (_, 65..=128) => 64,
        (_, _) => 32,
    }
}

/// The kernels for one head width, and their launch configuration.
struct Kernels {
    /// Precision of the products: TF32 only if values are f32, and bf16 only if values are bf16.
    precision: Precision,
    source: Source,
    padded: usize,
    tile: usize,
    /// Length of the longest sequence in tokens.
    longest: usize,
}

/// The kernels that use one block per tile and head.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Forward,
    BackwardQueries,
    BackwardKeys,
}

impl Kernels {
    fn new(qkv: &CudaMatrix, is_plain: bool, shape: &AttentionShape) -> Result<Self> {
        let precision = match (qkv.format(), qkv.precision()) {
            // Only the f32 kernels support windows, soft-capping and relative positions.
            _ if !is_plain => Precision::F32,
            (NumberFormat::Bf16, _) => Precision::Bf16,
            (NumberFormat::F32, Precision::Tf32) => Precision::Tf32,
            (NumberFormat::F32 | NumberFormat::Nf4, _) => Precision::F32,
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

    /// One block per piece and head.
    fn grid(&self, pass: Pass, pieces: usize, shape: &AttentionShape) -> Grid {
        let heads = if pass == Pass::BackwardKeys { shape.key_heads } else { shape.heads };
        let (threads, shared) = match self.precision {
            Precision::F32 => (256, self.shared_f32(pass)),
            Precision::Tf32 => (128, self.shared_tf32(pass, shape)),
            Precision::Bf16 => (128, self.shared_bf16(pass, shape)),
        };
        Grid { blocks: (pieces, heads), threads: (threads, 1), shared: shared as u32 }
    }

    /// Shared memory of a block in bytes, for its tiles of rows and of scores.
    fn shared_f32(&self, pass: Pass) -> usize {
        let (tiles, scores) = match pass {
            Pass::Forward => (3, 1),
            Pass::BackwardQueries => (4, 1),
            Pass::BackwardKeys => (4, 2),
        };
        let numbers = tiles * self.tile * (self.padded + 1) + scores * self.tile * (self.tile + 1);
        numbers * size_of::<f32>()
    }

    /// Shared memory of a block in bytes, for bf16 tiles: its own rows, and one or two pipeline
    /// stages of the rows that it iterates over.
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

    /// Shared memory of a block in bytes, for the same tiles in f32.
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

    /// Whether the key kernel also computes the gradient of the queries.
    fn is_one_tile(&self) -> bool {
        self.precision != Precision::F32 && self.longest <= self.tile
    }

    /// For each tile of rows: start and length of its sequence, and its first row.
    fn pieces(&self, shape: &AttentionShape) -> Vec<[u32; 4]> {
        let mut pieces = Vec::new();
        for window in shape.starts.windows(2) {
            let length = window[1] - window[0];
            for first in (0..length).step_by(self.tile) {
                pieces.push([window[0] as u32, length as u32, first as u32, 0]);
            }
        }
        // With a causal mask, later queries attend to more keys: group tiles with similar amounts
        // of work.
        if shape.causal {
            pieces.sort_by_key(|piece| piece[2]);
        }
        pieces
    }
}

/// The relative-position terms as the kernels read them: f32, with contiguous rows.
struct RelativeTerms {
    buckets: Arc<Buffer>,
    middle: usize,
    of_queries: CudaMatrix,
    of_keys: Option<CudaMatrix>,
    head_stride: usize,
    bucket_stride: usize,
}

impl RelativeTerms {
    fn new(relative: &Relative<CudaMatrix>) -> Result<Self> {
        let wide = |terms: &CudaMatrix| terms.in_format(NumberFormat::F32)?.dense();
        Ok(Self {
            buckets: relative.of_queries.gpu().constant(relative.buckets)?,
            middle: relative.middle(),
            of_queries: wide(relative.of_queries)?,
            of_keys: relative.of_keys.map(wide).transpose()?,
            head_stride: relative.head_stride,
            bucket_stride: relative.bucket_stride,
        })
    }

    /// Zeros for the gradient of the terms.
    fn zeros(terms: &CudaMatrix) -> Result<CudaMatrix> {
        CudaMatrix::zeros(terms.device(), NumberFormat::F32, terms.rows(), terms.columns())
    }
}

/// The leading arguments of all attention kernels; the f32 kernels take more.
fn shared_arguments<'a>(
    precision: Precision,
    qkv: &'a CudaMatrix,
    relative: Option<&'a RelativeTerms>,
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
        all.extend_from_slice(arguments![
            window,
            soft_cap,
            relative.map(|terms| &*terms.buckets),
            relative.map_or(0, |terms| terms.middle),
            relative.map(|terms| &terms.of_queries),
            relative.and_then(|terms| terms.of_keys.as_ref()),
            relative.map_or(0, |terms| terms.of_queries.columns()),
            relative.map_or(0, |terms| terms.head_stride),
            relative.map_or(0, |terms| terms.bucket_stride),
        ]);
    }
    all
}

/// The attention output `[tokens, heads · width]` and the log-sum-exp of each row's scores
/// `[tokens, heads]`.
pub fn forward(
    qkv: &CudaMatrix,
    relative: Option<&Relative<CudaMatrix>>,
    shape: &AttentionShape,
) -> Result<(CudaMatrix, CudaMatrix)> {
    let is_plain = relative.is_none() && shape.is_plain();
    if !is_plain && qkv.format() != NumberFormat::F32 {
        let (output, log_sums) = forward(&qkv.in_format(NumberFormat::F32)?, relative, shape)?;
        return Ok((output.in_format(qkv.format())?, log_sums));
    }
    let (gpu, tokens, heads) = (qkv.gpu(), qkv.rows(), shape.heads);
    let kernels = Kernels::new(qkv, is_plain, shape)?;
    let relative = relative.map(RelativeTerms::new).transpose()?;
    let relative = relative.as_ref();
    let output = qkv.like(tokens, heads * shape.width)?;
    let log_sums = qkv.like_f32(tokens, heads)?;
    let pieces = kernels.pieces(shape);
    let grid = kernels.grid(Pass::Forward, pieces.len(), shape);
    let pieces = gpu.constant(&pieces)?;
    let mut arguments = shared_arguments(kernels.precision, qkv, relative, shape, &pieces);
    arguments.extend_from_slice(arguments![&output, &log_sums]);
    // SAFETY: the pieces cover the tokens, qkv has columns for these heads, and the outputs are new
    // and large enough for what the kernel writes.
    unsafe { gpu.launch(kernels.source.kernel("attention_forward"), grid, &arguments)? };
    Ok((output, log_sums))
}

/// Gradients with respect to queries, keys and values, in the layout of `qkv`, and to the
/// relative-position terms; `saved` is the output of the forward pass.
pub fn backward(
    qkv: &CudaMatrix,
    relative: Option<&Relative<CudaMatrix>>,
    saved: (&CudaMatrix, &CudaMatrix),
    output_gradient: &CudaMatrix,
    shape: &AttentionShape,
) -> Result<RelativeGradients<CudaMatrix>> {
    let is_plain = relative.is_none() && shape.is_plain();
    if !is_plain && qkv.format() != NumberFormat::F32 {
        let wide = qkv.in_format(NumberFormat::F32)?;
        let gradients = backward(&wide, relative, saved, output_gradient, shape)?;
        return Ok(RelativeGradients { qkv: gradients.qkv.in_format(qkv.format())?, ..gradients });
    }
    let (output, log_sums) = saved;
    let (gpu, tokens, heads) = (qkv.gpu(), qkv.rows(), shape.heads);
    let kernels = Kernels::new(qkv, is_plain, shape)?;
    let relative = relative.map(RelativeTerms::new).transpose()?;
    let relative = relative.as_ref();
    let of_queries = relative.map(|terms| RelativeTerms::zeros(&terms.of_queries)).transpose()?;
    let of_keys = relative.and_then(|terms| terms.of_keys.as_ref());
    let of_keys = of_keys.map(RelativeTerms::zeros).transpose()?;
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
    // SAFETY: the output and its gradient have one row per token and columns for these heads; the
    // sums are new.
    unsafe { gpu.launch(kernel, rows, arguments)? };
    let pieces = kernels.pieces(shape);
    let count = pieces.len();
    let pieces = gpu.constant(&pieces)?;
    let mut arguments = shared_arguments(kernels.precision, qkv, relative, shape, &pieces);
    arguments.extend_from_slice(arguments![
        &log_sums,
        &along,
        output_gradient,
        output_gradient.stride(),
        &gradient,
    ]);
    if kernels.precision == Precision::F32 {
        arguments.extend_from_slice(arguments![of_queries.as_ref(), of_keys.as_ref()]);
    }
    let queries = kernels.source.kernel("attention_backward_queries");
    let keys = kernels.source.kernel("attention_backward_keys");
    // SAFETY: the pieces cover the tokens, all operands have one row per token and columns for
    // these heads, and the gradient is new. Exactly one of the kernels writes each of its values:
    // with tensor cores, the key kernel also writes the query gradient of sequences of a single
    // tile, which the query kernel skips.
    unsafe {
        if !kernels.is_one_tile() {
            let grid = kernels.grid(Pass::BackwardQueries, count, shape);
            gpu.launch(queries, grid, &arguments)?;
        }
        gpu.launch(keys, kernels.grid(Pass::BackwardKeys, count, shape), &arguments)?;
    }
    let none = || CudaMatrix::zeros(qkv.device(), NumberFormat::F32, tokens, 0);
    let of_queries = of_queries.map_or_else(none, Ok)?;
    Ok(RelativeGradients { qkv: gradient, of_queries, of_keys })
}
