//! Norms of gradients that are formed explicitly, a block at a time.

use super::{ColumnWeights, SLACK, Share, longest, part, per_unit, rows};
use crate::Host;
use crate::cpu::matmul::multiply;
use crate::cpu::parallel;
use crate::cpu::simd::{dot, sum_lanes, widest};
use crate::cpu::view::{Update, View};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::cpu::x86::amx;
use std::ops::Range;

/// Values of a formed gradient per task, unless that gives too few rows for a fast product.
const FORMED: usize = 98_304;

/// Rows of a formed gradient per task, if each row has `d` values.
fn height(d: usize) -> usize {
    (FORMED / d.max(1)).max(64)
}

/// The row blocks of the gradients of layers that share an input of width `d`.
pub fn blocks(d: usize, es: &[&Host]) -> impl Iterator<Item = (usize, Range<usize>)> {
    let width = height(d);
    es.iter().enumerate().flat_map(move |(layer, e)| {
        let columns = e.columns();
        (0..columns).step_by(width).map(move |first| (layer, first..columns.min(first + width)))
    })
}

/// The gradient Σ_t l_t ⊗ r_t of each range, as one row per range.
pub fn gradients(left: &Host, right: &Host, ranges: &[Range<usize>]) -> Host {
    let (p, d) = (left.columns(), right.columns());
    // With few units, the rows of their gradients are divided among the cores.
    let blocks = (2 * rayon::current_num_threads()).div_ceil(ranges.len().max(1));
    let height = p.div_ceil(blocks).max(16);
    Host::build(ranges.len(), p * d, |out| {
        if out.is_empty() {
            return;
        }
        let units = out.chunks_mut(p * d).zip(ranges);
        let tasks = units.flat_map(|(gradient, range)| {
            let blocks = gradient.chunks_mut(height * d).enumerate();
            blocks.map(move |(i, block)| (block, range, i * height))
        });
        parallel::each(
            tasks.collect(),
            #[inline(always)]
            |(block, range, first)| {
                let l = part(left, range, first..first + block.len() / d);
                let (l, r) = (l.transposed(), rows(right, range));
                multiply(block, d, Update::Overwrite, 1.0, l, r, false);
            },
        );
    })
}

/// Sum of squares of some rows of G, which are formed in `space`.
pub fn block(
    a: &Host,
    e: &Host,
    range: &Range<usize>,
    columns: Range<usize>,
    weights: Option<ColumnWeights>,
    space: &mut Vec<f32>,
) -> Share {
    widest(
        #[inline(always)]
        || {
            let d = a.columns();
            let mut most = if columns.start == 0 { longest(a, e, range) } else { 0.0 };
            let part = part(e, range, columns.clone());
            let formed = form(part, rows(a, range), space);
            let mut sum = lost_squares(columns.len() * d, weights);
            for (i, row) in columns.zip(formed.chunks(d.max(1))) {
                sum += match weights {
                    None => f64::from(dot(row, row)),
                    Some(weights) => f64::from(weights.e[i]) * weighted_square(row, weights.a),
                };
            }
            if let Some(ColumnWeights { a, e }) = weights {
                // Weights scale the norm of a gradient by at most the root of the product of the
                // largest weights.
                let largest =
                    |weights: &[f32]| f64::from(weights.iter().copied().fold(0.0, f32::max));
                most *= (largest(a) * largest(e)).sqrt();
            }
            Share { squared: sum, most }
        },
    )
}

/// Upper bound on what underflow can remove from a sum of `count` squares in `f32`: less than the
/// smallest positive number per square; with weights, that times (1 + the largest weight of a)
/// times the largest weight of e.
fn lost_squares(count: usize, weights: Option<ColumnWeights>) -> f64 {
    let largest = |weights: &[f32]| f64::from(weights.iter().copied().fold(0.0, f32::max));
    let weight = weights.map_or(1.0, |w| (1.0 + largest(w.a)) * largest(w.e));
    weight * count as f64 * f64::from(f32::from_bits(1))
}

/// leftᵀ · right.
#[inline(always)]
fn form<'a>(left: View, right: View, space: &'a mut Vec<f32>) -> &'a [f32] {
    let count = left.columns * right.columns;
    if space.len() < count {
        space.resize(count, 0.0);
    }
    multiply(space, right.columns, Update::Overwrite, 1.0, left.transposed(), right, false);
    &space[..count]
}

/// For each list of weights and each range, an upper bound on Σ w ⊙ G², with G = Σ_t l_t ⊗ r_t and
/// weights in the layout of G. G is formed block by block.
pub fn weighted_products(
    left: &Host,
    right: &Host,
    ranges: &[Range<usize>],
    weights: &[&[f32]],
) -> Vec<Vec<f64>> {
    let d = right.columns();
    // Blocks that are not stored may be larger; it is their weights that have to stay in cache.
    let height = 2 * height(d);
    let largest: Vec<f64> =
        weights.iter().map(|w| f64::from(w.iter().copied().fold(0.0, f32::max))).collect();
    // Block by block, so that the weights of a block stay in cache while all units use them.
    let tasks: Vec<(usize, Range<usize>)> = (0..left.columns())
        .step_by(height)
        .flat_map(|first| {
            (0..ranges.len()).map(move |unit| (unit, first..left.columns().min(first + height)))
        })
        .collect();
    let formed = |i: usize, space: &mut Vec<f32>| {
        let (unit, block) = &tasks[i];
        let range = &ranges[*unit];
        let (l, r) = (part(left, range, block.clone()), rows(right, range));
        let mut sums = vec![0.0; weights.len()];
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(tiles) = amx::blocks_suit(&l.transposed(), &r) {
            amx::for_each_block(tiles, l.transposed(), r, |row, column, numbers| {
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    let weights = &weights[(block.start + row) * d + column..];
                    *sum += weighted_block(numbers, weights, d, block.len() - row, d - column);
                }
            });
            return sums;
        }
        widest(
            #[inline(always)]
            || {
                let gradient = form(l, r, space);
                // Loops instead of iterators: code that is inlined here is compiled for wide
                // registers.
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    let weights = &weights[block.start * d..block.end * d];
                    for (row, weights) in gradient.chunks(d.max(1)).zip(weights.chunks(d.max(1))) {
                        *sum += weighted_square(row, weights);
                    }
                }
            },
        );
        sums
    };
    let parts = parallel::map_with_space(tasks.len(), formed);
    let mut totals = vec![vec![0.0; ranges.len()]; weights.len()];
    for ((unit, _), sums) in tasks.iter().zip(parts) {
        totals.iter_mut().zip(sums).for_each(|(total, sum)| total[*unit] += sum);
    }
    let most = per_unit(
        ranges,
        #[inline(always)]
        |_, range| longest(left, right, range),
    );
    for (total, largest) in totals.iter_mut().zip(largest) {
        for (total, most) in total.iter_mut().zip(&most) {
            *total += 2.0 * SLACK * largest * most * most;
            if largest > 0.0 {
                let squares = (left.columns() * d) as f64;
                *total += (1.0 + largest) * squares * f64::from(f32::from_bits(1));
            }
        }
    }
    totals
}

/// Σ w x² over the valid rows and columns of a block, whose weights have row distance `stride`.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn weighted_block(
    block: &amx::Block,
    weights: &[f32],
    stride: usize,
    height: usize,
    width: usize,
) -> f64 {
    use crate::cpu::simd::prefetch;
    const SIDE: usize = amx::BLOCK_SIDE;
    widest(
        #[inline(always)]
        || {
            let (rows, _) = block.0.as_chunks::<SIDE>();
            if height < SIDE || width < SIDE {
                let mut sum = 0.0;
                for (row, weights) in rows.iter().zip(weights.chunks(stride)).take(height) {
                    let count = width.min(SIDE);
                    sum += weighted_square(&row[..count], &weights[..count]);
                }
                return sum;
            }
            // Sixteen values per running sum, as in `weighted_square`.
            let mut sum = 0.0;
            for half in 0..2 {
                let (mut even, mut odd) = ([0.0_f32; 16], [0.0_f32; 16]);
                for i in half * SIDE / 2..(half + 1) * SIDE / 2 {
                    let from: &[f32; SIDE] =
                        weights[i * stride..].first_chunk().expect("a whole row");
                    // Prefetch the weights of the next block.
                    prefetch(from.as_ptr().wrapping_add(SIDE));
                    prefetch(from.as_ptr().wrapping_add(SIDE + 16));
                    let ((x, _), (w, _)) = (rows[i].as_chunks::<16>(), from.as_chunks::<16>());
                    for k in 0..16 {
                        even[k] = (x[0][k] * x[0][k]).mul_add(w[0][k], even[k]);
                    }
                    for k in 0..16 {
                        odd[k] = (x[1][k] * x[1][k]).mul_add(w[1][k], odd[k]);
                    }
                }
                sum += f64::from(sum_lanes(even)) + f64::from(sum_lanes(odd));
            }
            sum
        },
    )
}

/// Σ w x², with sixteen running sums for each run of 256 values, so that the rounding error does
/// not grow with the length.
#[inline(always)]
fn weighted_square(values: &[f32], weights: &[f32]) -> f64 {
    let mut sum = 0.0;
    for (values, weights) in values.chunks(256).zip(weights.chunks(256)) {
        let mut lanes = [0.0_f32; 16];
        let (chunks, rest) = values.as_chunks::<16>();
        let (weight_chunks, weights_left) = weights.as_chunks::<16>();
        for (x, w) in chunks.iter().zip(weight_chunks) {
            for i in 0..16 {
                lanes[i] = (x[i] * x[i]).mul_add(w[i], lanes[i]);
            }
        }
        let rest: f32 = rest.iter().zip(weights_left).map(|(x, w)| x * x * w).sum();
        sum += f64::from(sum_lanes(lanes) + rest);
    }
    sum
}
