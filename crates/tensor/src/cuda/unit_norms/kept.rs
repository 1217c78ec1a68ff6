//! Kept gradients: the gradient of each unit, formed and stored in f32.
//!
//! **Statement.** Let g̃ be the gradient of a unit as it is stored. The unit adds c g̃ to the sum,
//! with each coordinate multiplied by c in f32. The norm of this contribution is at most c times
//! the square root of the sum that [`squared_rows`] adds. *Proof:* The norm is computed from the
//! stored values, so the error of forming them, whatever its size, affects both alike. The square
//! of an f32 is exact in f64, and a sum of n ≤ 2²⁶ of them has a relative error of less than 2⁻²⁶,
//! far below the 10⁻⁶ that is added. A rounded product c g̃_j exceeds c |g̃_j| by at most 2⁻²⁴ of
//! it, or by 2⁻¹⁵⁰ if it is subnormal: √n times 2⁻¹⁵⁰ is less than 10⁻⁶ of any clipping norm. ∎
//!
//! A unit's gradient is a function of its own rows: a block of threads computes one tile, 64 tokens
//! at a time starting with the unit's first, independently of the rest of the batch. Its bits are
//! therefore the same in any batch.

use super::{Onto, SIDE, ends, shared_of_formed};
use crate::Precision;
use crate::backend::Ranges;
use crate::cuda::device::Gpu;
use crate::cuda::format::NumberFormat;
use crate::cuda::launch::{Grid, arguments};
use crate::cuda::matrix::CudaMatrix;
use crate::cuda::memory::Buffer;
use crate::cuda::source::Source;
use crate::error::Result;
use crate::unit_norms::SquareWeights;
use std::sync::Arc;

/// Number of pipeline stages of 64 tokens that a block holds for bf16 factors, as in the kernel.
const STAGES: usize = 3;

/// The gradient Σ_t l_t ⊗ r_t of each unit: one row of f32 per unit.
pub fn gradients(left: &CudaMatrix, right: &CudaMatrix, ranges: Ranges) -> Result<CudaMatrix> {
    let precision = left.precision();
    let (left, right) = (left.as_factor()?, right.as_factor()?);
    let wide = [&left, &right].iter().any(|matrix| matrix.format() == NumberFormat::F32);
    let format = if wide { NumberFormat::F32 } else { NumberFormat::Bf16 };
    let (left, right) = (left.in_format(format)?, right.in_format(format)?);
    let gradients = left.like_f32(ranges.len(), left.columns() * right.columns())?;
    let (across, down) = (right.columns().div_ceil(SIDE), left.columns().div_ceil(SIDE));
    let (source, shared) = match (precision, format) {
        (Precision::F32, _) => (Source::UnitNorms, 0),
        (_, NumberFormat::Bf16) => {
            (Source::UnitNormsMma(format), STAGES * shared_of_formed(format))
        }
        _ => (Source::UnitNormsMma(format), shared_of_formed(format)),
    };
    let places = left.gpu().constant(&ends(ranges))?;
    let arguments = arguments![
        &left,
        left.stride(),
        left.columns(),
        &right,
        right.stride(),
        right.columns(),
        &places,
        across * down,
        across,
        &gradients,
    ];
    let blocks = (across * down * ranges.len(), 1);
    let grid = Grid { blocks, threads: (256, 1), shared: shared as u32 };
    // SAFETY: all ranges are rows of both factors; the output is new and has one row per range,
    // with room for the product of the factors' columns.
    unsafe { left.gpu().launch(source.kernel("unit_gradients"), grid, arguments)? };
    Ok(gradients)
}

/// Kept gradients, one row per unit, whose squared norms are deferred.
#[derive(Debug)]
pub(super) struct Squares {
    times: f64,
    rows: CudaMatrix,
    weights: Deferred,
}

/// [`SquareWeights`] that outlive the call.
#[derive(Debug)]
enum Deferred {
    Ones,
    Coordinates(Arc<Buffer>),
    Factored { rows: Vec<f32>, columns: Vec<f32> },
}

/// Adds the squared norm of each row, rounded up by more than the rounding error of the sums.
pub fn squared_rows(onto: Onto, rows: &CudaMatrix, weights: SquareWeights) -> Result<()> {
    assert_eq!(onto.sums.units, rows.rows(), "a row for each unit");
    let rows = rows.in_format(NumberFormat::F32)?;
    let weights = match weights {
        SquareWeights::Ones => Deferred::Ones,
        SquareWeights::Coordinates(weights) => Deferred::Coordinates(weights.on_gpu(rows.gpu())?),
        SquareWeights::Factored { rows, columns } => {
            Deferred::Factored { rows: rows.to_vec(), columns: columns.to_vec() }
        }
    };
    onto.sums.squares.push(Squares { times: onto.times * (1.0 + 1e-6), rows, weights });
    Ok(())
}

/// Adds the squared norms of all kept gradients to the sum of each unit.
pub(super) fn add_squares(
    gpu: &'static Gpu,
    squares: &[Squares],
    units: usize,
    sums: &Buffer,
) -> Result<()> {
    if squares.is_empty() || units == 0 {
        return Ok(());
    }
    // Factored weights of all gradients are copied together.
    let factored = squares.iter().flat_map(|squares| match &squares.weights {
        Deferred::Factored { rows, columns } => [&rows[..], &columns[..]],
        _ => [&[][..], &[]],
    });
    let factored = gpu.upload(&factored.flatten().copied().collect::<Vec<f32>>())?;
    let mut next = factored.pointer();
    let mut words = Vec::with_capacity(8 * squares.len());
    for Squares { times, rows, weights } in squares {
        let (weights, of_rows, width) = match weights {
            Deferred::Ones => (0, 0, 0),
            Deferred::Coordinates(weights) => (weights.pointer(), 0, 0),
            Deferred::Factored { rows, columns } => {
                let of_columns = next + size_of_val(&rows[..]) as u64;
                let of_rows = std::mem::replace(&mut next, of_columns);
                next += size_of_val(&columns[..]) as u64;
                (of_columns, of_rows, columns.len() as u64)
            }
        };
        let (stride, columns) = (rows.stride() as u64, rows.columns() as u64);
        let times = times.to_bits();
        words.extend([rows.pointer(), stride, columns, weights, of_rows, width, times, 0]);
    }
    let words = gpu.upload(&words)?;
    let partial = gpu.allocate(squares.len() * units * size_of::<f64>())?;
    let source = Source::UnitRows(NumberFormat::F32);
    let grid = Grid { blocks: (units, squares.len()), threads: (256, 1), shared: 0 };
    let arguments = arguments![&words, &partial];
    // SAFETY: the words form one structure of eight for each f32 matrix, which has one row per unit
    // and one weight per column, or one for each row and column of a parameter, or none; the output
    // is new and has a value for each matrix and unit.
    unsafe { gpu.launch(source.kernel("unit_squares"), grid, arguments)? };
    let grid = Grid { blocks: (units, 1), threads: (256, 1), shared: 0 };
    let arguments = arguments![&partial, squares.len(), sums];
    // SAFETY: there is a value for each matrix and unit, and one sum per unit; the sums are not
    // shared.
    unsafe { gpu.launch(source.kernel("unit_add_squares"), grid, arguments) }
}

/// Rows with at least this many columns are summed by threads that have four columns each, shorter
/// rows by sixteen threads per column.
const WIDE: usize = 4096;

/// For each of several matrices with one row per unit, the sum of its rows multiplied by their
/// factors.
pub fn vector_sums(vectors: &[&CudaMatrix], factors: &[f32]) -> Result<Vec<CudaMatrix>> {
    let Some(first) = vectors.first() else { return Ok(Vec::new()) };
    let gpu = first.gpu();
    let vectors = vectors
        .iter()
        .map(|vector| vector.in_format(NumberFormat::F32))
        .collect::<Result<Vec<_>>>()?;
    let sums = vectors
        .iter()
        .map(|vector| vector.like_f32(1, vector.columns()))
        .collect::<Result<Vec<_>>>()?;
    let weights = gpu.constant(factors)?;
    for (name, is_wide, of_block, threads) in
        [("unit_vector_sums", false, 32, (32, 16)), ("unit_wide_sums", true, 1024, (256, 1))]
    {
        let (mut words, mut blocks) = (Vec::new(), 0);
        for (vector, sum) in vectors.iter().zip(&sums) {
            if (vector.columns() >= WIDE) != is_wide {
                continue;
            }
            let (stride, columns) = (vector.stride() as u64, vector.columns() as u64);
            words.extend([vector.pointer(), stride, columns, sum.pointer(), blocks as u64]);
            blocks += vector.columns().div_ceil(of_block);
        }
        let count = words.len() / 5;
        let words = gpu.upload(&words)?;
        let arguments = arguments![&words, count, &weights, factors.len()];
        let kernel = Source::UnitRows(NumberFormat::F32).kernel(name);
        let grid = Grid { blocks: (blocks, 1), threads, shared: 0 };
        // SAFETY: the words form one structure of five for each f32 matrix, which has one row per
        // factor; the sums are new.
        unsafe { gpu.launch(kernel, grid, arguments)? };
    }
    Ok(sums)
}
