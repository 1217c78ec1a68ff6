//! Norms of gradients with a weight for each coordinate: each unit's gradient is formed, tile by
//! tile.
//!
//! **Statement.** G = Σ_t l_t ⊗ r_t is formed with an error of at most k Σ_t |l_t| ⊗ |r_t| in each
//! coordinate (see [`super`]). With weights w ≤ W, the norm of that error is at most √W k M with M
//! = Σ_t ‖l_t‖ ‖r_t‖, so ‖G‖_w ≤ √S + √W k M, where S = Σ w G̃² for the gradient G̃ as formed. The
//! square of the right-hand side is added. The factors are f32 here and are not rounded before they
//! are summed, so no other term is needed.

use super::operands::{Inputs, Operands};
use super::{CudaPerUnit, Onto, SIDE, ends, pairs, shared_of_formed, slack_of_tensor_cores};
use crate::CoordinateWeights;
use crate::backend::Ranges;
use crate::cuda::format::NumberFormat;
use crate::cuda::launch::{Grid, arguments};
use crate::cuda::matrix::CudaMatrix;
use crate::cuda::memory::Buffer;
use crate::cuda::source::Source;
use crate::error::Result;

/// Adds to each of one or two sums a bound on Σ w ⊙ G² under its weights.
pub fn weighted_products(
    onto: &mut [(&mut CudaPerUnit, f64)],
    (left, right): (&CudaMatrix, &CudaMatrix),
    ranges: Ranges,
    weights: &[&CoordinateWeights],
) -> Result<()> {
    let gpu = left.gpu();
    let (left, right) = (left.exact()?, right.exact()?);
    let (across, down) = (right.columns().div_ceil(SIDE), left.columns().div_ceil(SIDE));
    let tiles = across * down;
    if tiles == 0 || ranges.is_empty() {
        return Ok(());
    }
    let operands =
        Operands::new(Inputs::Matrices(&right, &right), &pairs(std::slice::from_ref(&left)))?;
    let row_norms = operands.row_norms(0)?;
    let places = gpu.constant(&ends(ranges))?;
    let longest = ranges.iter().map(|range| range.len()).max().unwrap_or_default();
    let k = slack_of_tensor_cores(NumberFormat::F32, longest);
    for (onto, weights) in onto.chunks_mut(2).zip(weights.chunks(2)) {
        let on_gpu =
            weights.iter().map(|weights| weights.on_gpu(gpu)).collect::<Result<Vec<_>>>()?;
        let second = on_gpu.get(1).map(|buffer| &**buffer);
        let partial = gpu.allocate(ranges.len() * tiles * size_of::<[f64; 2]>())?;
        let arguments = arguments![
            operands.input_parts(),
            operands.layer_parts(),
            &on_gpu[0],
            second,
            &places,
            across,
            &partial,
        ];
        let kernel = Source::UnitNormsMma(NumberFormat::F32).kernel("unit_formed_weighted");
        let shared = shared_of_formed(NumberFormat::F32) as u32;
        let grid = Grid { blocks: (tiles, ranges.len()), threads: (256, 1), shared };
        // SAFETY: all ranges are rows of both factors, and there is a weight for each coordinate of
        // their product; the output is new and has two values for each tile and unit.
        unsafe { gpu.launch(kernel, grid, arguments)? };
        for (n, ((sums, times), weights)) in onto.iter_mut().zip(weights).enumerate() {
            let rounding = 1.01 * k * weights.largest().sqrt();
            add_bounds(sums, *times, (&partial, n, tiles), (&row_norms, &places), rounding)?;
        }
    }
    Ok(())
}

/// Adds `times` (√S + rounding · M)² for each unit, where S is the sum of every second partial sum
/// of the unit, starting with index `n`, and M is the sum of its row norms.
fn add_bounds(
    sums: &CudaPerUnit,
    times: f64,
    (partial, n, tasks): (&Buffer, usize, usize),
    (row_norms, places): (&Buffer, &Buffer),
    rounding: f64,
) -> Result<()> {
    let gpu = sums.device.gpu;
    let firsts: Vec<u32> = (0..=sums.units).map(|unit| (unit * tasks) as u32).collect();
    let firsts = gpu.constant(&firsts)?;
    let from = partial.pointer() + (n * size_of::<f64>()) as u64;
    let arguments =
        arguments![from, &firsts, row_norms, places, 0.0_f64, rounding, times, &sums.values];
    let kernel = Source::UnitRows(NumberFormat::F32).kernel("unit_bounds");
    let grid = Grid { blocks: (sums.units, 1), threads: (128, 1), shared: 0 };
    // SAFETY: there are two values per task, and all ranges are rows with a norm; there is one sum
    // per unit, and the sums are not shared.
    unsafe { gpu.launch(kernel, grid, arguments) }
}

/// Adds a bound on the squared norm of a table's gradient with coordinate weights.
pub fn weighted_table(
    onto: Onto,
    indices: &[u32],
    e: &CudaMatrix,
    ranges: Ranges,
    weights: &CoordinateWeights,
) -> Result<()> {
    let gpu = e.gpu();
    let rows = weights.values().len() / e.columns().max(1);
    assert!(indices.iter().all(|&index| (index as usize) < rows), "weights of every row");
    let e = e.exact()?;
    let operands =
        Operands::new(Inputs::Table(indices, indices), &pairs(std::slice::from_ref(&e)))?;
    let row_norms = operands.row_norms(0)?;
    let (places, on_gpu) = (gpu.constant(&ends(ranges))?, weights.on_gpu(gpu)?);
    let indices = gpu.constant(indices)?;
    let blocks = e.columns().div_ceil(256);
    let partial = gpu.allocate(ranges.len() * blocks * size_of::<[f64; 2]>())?;
    let arguments = arguments![&indices, &e, e.stride(), e.columns(), &on_gpu, &places, &partial];
    let kernel = Source::UnitRows(NumberFormat::F32).kernel("unit_table_weighted");
    let grid = Grid { blocks: (blocks, ranges.len()), threads: (256, 1), shared: 0 };
    // SAFETY: all ranges are rows with an index, and there is a weight for each coordinate of the
    // table; the output is new and has two values per block.
    unsafe { gpu.launch(kernel, grid, arguments)? };
    // Rows are summed in f64.
    let rounding = 1e-6 * weights.largest().sqrt();
    add_bounds(onto.sums, onto.times, (&partial, 0, blocks), (&row_norms, &places), rounding)
}
