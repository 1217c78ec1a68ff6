//! Norms and inner products of gradients that are never formed: those of some rows of a batch, one result for each range of rows.
//!
//! For rows t of inputs a and output gradients e, the gradient of a weight is G = Σ_t e_t ⊗ a_t, and
//! ‖G‖² = Σ_{t,s} ⟨a_t, a_s⟩ ⟨e_t, e_s⟩ needs only two products of size n × n. Where G is smaller than that, blocks of it are formed.
//!
//! A norm that is too small would let an example through that is larger than its bound, so every result is an *upper* bound: it
//! includes what rounding can have taken away, [`SLACK`] of the sum Σ ‖a_t‖‖e_t‖ that bounds ‖G‖ in any case.

use super::matmul::{Update, View, multiply};
use super::simd::{dot, sum_lanes, widest};
use crate::tensor::Host;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;

/// Five times the error of our products (2e-7 of Σ|aᵢbᵢ|).
pub const SLACK: f64 = 1e-6;
/// Rows of a Gram matrix that make one task.
const BLOCK: usize = 64;
/// Numbers of a formed gradient that make one task.
const FORMED: usize = 65_536;

fn rows<'a>(matrix: &'a Host, range: &Range<usize>) -> View<'a> {
    part(matrix, range, 0..matrix.columns())
}

fn part<'a>(matrix: &'a Host, range: &Range<usize>, columns: Range<usize>) -> View<'a> {
    let start = (range.start * matrix.stride() + columns.start).min(matrix.span().len());
    View::new(&matrix.span()[start..], range.len(), columns.len(), matrix.stride())
}

/// One number for each range, on all cores.
fn per_unit(ranges: &[Range<usize>], number: impl Fn(usize, &Range<usize>) -> f64 + Sync) -> Vec<f64> {
    let unit = |(i, range): (usize, &Range<usize>)| {
        widest(
            #[inline(always)]
            || number(i, range),
        )
    };
    ranges.par_iter().enumerate().map(unit).collect()
}

#[inline(always)]
fn length(row: &[f32]) -> f64 {
    f64::from(dot(row, row)).sqrt()
}

/// Σ_t ‖a_t‖‖e_t‖ over a range of rows: no gradient of theirs is longer.
#[inline(always)]
fn longest(a: &Host, e: &Host, range: &Range<usize>) -> f64 {
    // Loops and not iterators: what is inlined here is compiled for wide registers.
    let mut sum = 0.0;
    for t in range.clone() {
        sum += length(a.row(t)) * length(e.row(t));
    }
    sum
}

/// Σ_t ‖e_t‖ over some rows.
#[inline(always)]
fn total_length(e: &Host, rows: impl Iterator<Item = usize>) -> f64 {
    let mut sum = 0.0;
    for t in rows {
        sum += length(e.row(t));
    }
    sum
}

/// Weights of the columns of a and of each e, under which the square of G_ij counts e's weight i times a's weight j.
#[derive(Clone, Copy)]
pub struct ColumnWeights<'a> {
    pub a: &'a [f32],
    pub e: &'a [f32],
}

/// For each range an upper bound of Σ_k ‖Σ_t e_{k,t} ⊗ a_t‖²: several layers may share one input. With weights there is one layer.
pub fn products(a: &Host, es: &[&Host], ranges: &[Range<usize>], weights: Option<ColumnWeights>) -> Vec<f64> {
    let (d, p) = (a.columns(), es.iter().map(|e| e.columns()).sum::<usize>());
    let mut tasks = Vec::new();
    for (unit, range) in ranges.iter().enumerate() {
        if range.len() * (d + p) < d * p {
            let blocks = (0..range.len()).step_by(BLOCK).map(|first| (unit, Task::Gram(first)));
            tasks.extend(blocks);
        } else {
            let width = (FORMED / d.max(1)).max(16);
            for (k, e) in es.iter().enumerate() {
                let blocks = (0..e.columns()).step_by(width);
                tasks.extend(
                    blocks.map(|first| (unit, Task::Formed(k, first..e.columns().min(first + width)))),
                );
            }
        }
    }
    let parts: Vec<Share> = tasks
        .par_iter()
        .map(|(unit, task)| match task {
            Task::Gram(first) => {
                Arch::new().dispatch(GramBlock { a, es, range: &ranges[*unit], first: *first, weights })
            }
            Task::Formed(k, columns) => widest(
                #[inline(always)]
                || formed_block(a, es[*k], &ranges[*unit], columns.clone(), weights),
            ),
        })
        .collect();
    let mut total = vec![Share::default(); ranges.len()];
    for ((unit, _), part) in tasks.iter().zip(parts) {
        total[*unit].squared += part.squared;
        total[*unit].most += part.most;
    }
    total.iter().map(|share| not_negative(share.squared) + 2.0 * SLACK * share.most * share.most).collect()
}

/// Rounding below zero is zero, and a NaN stays one: it must not pass for a short gradient.
pub fn not_negative(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// A part of the work on one range.
enum Task {
    /// Rows from here on, by Gram matrices.
    Gram(usize),
    /// Some rows of the gradient of one layer, formed.
    Formed(usize, Range<usize>),
}

/// What a task adds: to the squared norm, and to Σ_t ‖a_t‖‖e_t‖ (in which e is that of all layers side by side, or at most larger).
#[derive(Clone, Copy, Default)]
struct Share {
    squared: f64,
    most: f64,
}

/// The share in ‖G‖² of a block of rows with itself and, twice, with all later rows of the range.
struct GramBlock<'a> {
    a: &'a Host,
    es: &'a [&'a Host],
    range: &'a Range<usize>,
    first: usize,
    weights: Option<ColumnWeights<'a>>,
}

impl WithSimd for GramBlock<'_> {
    type Output = Share;

    /// Six rows meet four others at a time; neither Gram matrix is written down.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Share {
        let Self { a, es, range, first, weights } = self;
        let last = range.end - 1;
        let block = range.start + first..range.end.min(range.start + first + BLOCK);
        let mut share = Share::default();
        for i in block.clone().step_by(HEIGHT) {
            let height = HEIGHT.min(block.end - i);
            for j in (i..range.end).step_by(WIDTH) {
                // Beyond the end the last row is taken again, and its products are not used.
                let t: [usize; HEIGHT] = std::array::from_fn(|d| (i + d).min(last));
                let s: [usize; WIDTH] = std::array::from_fn(|d| (j + d).min(last));
                let (x, y) = match weights {
                    None => (meet::<S, false>(simd, &[a], t, s, &[]), meet::<S, false>(simd, es, t, s, &[])),
                    Some(ColumnWeights { a: of_a, e: of_e }) => {
                        (meet::<S, true>(simd, &[a], t, s, of_a), meet::<S, true>(simd, es, t, s, of_e))
                    }
                };
                let width = WIDTH.min(range.end - j);
                for (d, (x, y)) in x[..height].iter().zip(&y[..height]).enumerate() {
                    for (c, (x, y)) in x[..width].iter().zip(&y[..width]).enumerate() {
                        let product = f64::from(*x) * f64::from(*y);
                        // A row with itself once, with a later one twice; an earlier one has met it already.
                        match (i + d).cmp(&(j + c)) {
                            std::cmp::Ordering::Less => share.squared += 2.0 * product,
                            std::cmp::Ordering::Equal => {
                                share.squared += product;
                                share.most += not_negative(product).sqrt();
                            }
                            std::cmp::Ordering::Greater => {}
                        }
                    }
                }
            }
        }
        share
    }
}

/// Rows of one side and of the other that meet at a time: 24 sums and the rows that they come from stay in registers.
const HEIGHT: usize = 6;
const WIDTH: usize = 4;

/// All inner products of six rows with four others, added up over several matrices; under weights of their columns, if there are any.
#[inline(always)]
fn meet<S: Simd, const WEIGHTED: bool>(
    simd: S,
    matrices: &[&Host],
    t: [usize; HEIGHT],
    s: [usize; WIDTH],
    weights: &[f32],
) -> [[f32; WIDTH]; HEIGHT] {
    let mut sums = [[simd.splat_f32s(0.0); WIDTH]; HEIGHT];
    let mut out = [[0.0; WIDTH]; HEIGHT];
    for matrix in matrices {
        let (left, left_ends): (Vec6<'_, S>, [&[f32]; HEIGHT]) =
            heads(t.map(|t| S::as_simd_f32s(matrix.row(t))));
        let (right, right_ends): (Vec4<'_, S>, [&[f32]; WIDTH]) =
            heads(s.map(|s| S::as_simd_f32s(matrix.row(s))));
        let steps = left[0].len();
        let left = left.map(|row| &row[..steps]);
        let right = right.map(|row| &row[..steps]);
        let (whole, rest) = S::as_simd_f32s(weights);
        let whole = if WEIGHTED { &whole[..steps] } else { whole };
        for k in 0..steps {
            let mut b = [right[0][k], right[1][k], right[2][k], right[3][k]];
            if WEIGHTED {
                b = b.map(|b| simd.mul_f32s(b, whole[k]));
            }
            for i in 0..HEIGHT {
                let a = left[i][k];
                for j in 0..WIDTH {
                    sums[i][j] = simd.mul_add_e_f32s(a, b[j], sums[i][j]);
                }
            }
        }
        for i in 0..HEIGHT {
            for j in 0..WIDTH {
                for (k, (x, y)) in left_ends[i].iter().zip(right_ends[j]).enumerate() {
                    out[i][j] += x * y * rest.get(k).copied().unwrap_or(1.0);
                }
            }
        }
    }
    // By value: whatever has its address taken would be kept in memory all through the loop above.
    match bytemuck::try_cast::<_, [[[f32; 16]; 8]; 3]>(sums) {
        Ok(eights) => {
            for (i, eight) in eights.iter().enumerate() {
                for (j, sum) in totals(eight).into_iter().enumerate() {
                    out[2 * i + j / WIDTH][j % WIDTH] += sum;
                }
            }
        }
        Err(_) => {
            for i in 0..HEIGHT {
                for j in 0..WIDTH {
                    out[i][j] += simd.reduce_sum_f32s(sums[i][j]);
                }
            }
        }
    }
    out
}

/// The sum of each of eight rows. Two rows become one, whose halves are theirs folded, and so on: three operations for two rows, where each alone would take ten.
#[inline(always)]
fn totals(rows: &[[f32; 16]; 8]) -> [f32; 8] {
    let four: [[f32; 16]; 4] = std::array::from_fn(|i| fold::<8>(&rows[i], &rows[i + 4]));
    let two: [[f32; 16]; 2] = std::array::from_fn(|i| fold::<4>(&four[i], &four[i + 2]));
    let one = fold::<2>(&two[0], &two[1]);
    std::array::from_fn(|row| one[2 * row] + one[2 * row + 1])
}

/// Each run of 2·SIZE lanes of both rows has its halves added: those of the first row come to lie in the lanes without the bit SIZE, those of the second in those with it.
#[inline(always)]
fn fold<const SIZE: usize>(one: &[f32; 16], other: &[f32; 16]) -> [f32; 16] {
    std::array::from_fn(|lane| {
        if lane & SIZE == 0 { one[lane] + one[lane + SIZE] } else { other[lane - SIZE] + other[lane] }
    })
}

type Vec6<'a, S> = [&'a [<S as Simd>::f32s]; HEIGHT];
type Vec4<'a, S> = [&'a [<S as Simd>::f32s]; WIDTH];

/// Whole vectors of each row, and what is left of it.
#[inline(always)]
fn heads<'a, V, const N: usize>(rows: [(&'a [V], &'a [f32]); N]) -> ([&'a [V]; N], [&'a [f32]; N]) {
    (rows.map(|row| row.0), rows.map(|row| row.1))
}

/// The squares of some rows of G.
#[inline(always)]
fn formed_block(
    a: &Host,
    e: &Host,
    range: &Range<usize>,
    columns: Range<usize>,
    weights: Option<ColumnWeights>,
) -> Share {
    let d = a.columns();
    let mut most = if columns.start == 0 { longest(a, e, range) } else { 0.0 };
    let mut formed = vec![0.0; columns.len() * d];
    let part = part(e, range, columns.clone());
    multiply(&mut formed, d, Update::Overwrite, 1.0, part.transposed(), rows(a, range), false);
    let mut sum = 0.0;
    for (i, row) in columns.zip(formed.chunks(d.max(1))) {
        sum += match weights {
            None => f64::from(dot(row, row)),
            Some(weights) => f64::from(weights.e[i]) * weighted_square(row, weights.a),
        };
    }
    if let Some(ColumnWeights { a, e }) = weights {
        // No gradient is longer under weights than the largest of them allows.
        let largest = |weights: &[f32]| f64::from(weights.iter().copied().fold(0.0, f32::max));
        most *= (largest(a) * largest(e)).sqrt();
    }
    Share { squared: sum, most }
}

/// All inner products of some rows of one matrix with some of another.
fn gram((x, range): (&Host, &Range<usize>), (y, other): (&Host, &Range<usize>)) -> Vec<f32> {
    let mut gram = vec![0.0; range.len() * other.len()];
    let (left, right) = (rows(x, range), rows(y, other));
    multiply(&mut gram, other.len(), Update::Overwrite, 1.0, left, right.transposed(), false);
    gram
}

/// For each range an upper bound of the inner product of two such gradients, made of rows of the same units.
pub fn inner_products(
    (a, e, ranges): (&Host, &Host, &[Range<usize>]),
    (b, f, others): (&Host, &Host, &[Range<usize>]),
) -> Vec<f64> {
    per_unit(
        ranges,
        #[inline(always)]
        |unit, range| {
            let other = &others[unit];
            let inner = f64::from(dot(&gram((a, range), (b, other)), &gram((e, range), (f, other))));
            inner + 2.0 * SLACK * longest(a, e, range) * longest(b, f, other)
        },
    )
}

/// For each list of weights and each range an upper bound of Σ w ⊙ G², with G = Σ_t l_t ⊗ r_t and weights in the layout of G. Blocks of G are formed.
pub fn weighted_products(
    left: &Host,
    right: &Host,
    ranges: &[Range<usize>],
    weights: &[&[f32]],
) -> Vec<Vec<f64>> {
    let d = right.columns();
    let height = (FORMED / d.max(1)).max(16);
    let largest: Vec<f64> =
        weights.iter().map(|w| f64::from(w.iter().copied().fold(0.0, f32::max))).collect();
    // Block after block, so that the weights of a block stay near while all units meet them.
    let tasks: Vec<(usize, Range<usize>)> = (0..left.columns())
        .step_by(height)
        .flat_map(|first| {
            (0..ranges.len()).map(move |unit| (unit, first..left.columns().min(first + height)))
        })
        .collect();
    let formed = |(unit, block): &(usize, Range<usize>)| {
        widest(
            #[inline(always)]
            || {
                let range = &ranges[*unit];
                let mut gradient = vec![0.0; block.len() * d];
                let l = part(left, range, block.clone());
                multiply(&mut gradient, d, Update::Overwrite, 1.0, l.transposed(), rows(right, range), false);
                let sums = weights.iter().map(|w| {
                    let mut sum = 0.0;
                    let weights = &w[block.start * d..block.end * d];
                    for (row, weights) in gradient.chunks(d.max(1)).zip(weights.chunks(d.max(1))) {
                        sum += weighted_square(row, weights);
                    }
                    sum
                });
                sums.collect::<Vec<f64>>()
            },
        )
    };
    let parts: Vec<Vec<f64>> = tasks.par_iter().map(formed).collect();
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
        }
    }
    totals
}

/// Σ w x², with sixteen running sums for each run of 256 numbers, so that rounding does not grow with the length.
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

/// The gradient of a table: row `indices[t]` has e_t added. For each range an upper bound of its squared norm, each coordinate's square times its weight.
pub fn table_rows(indices: &[u32], e: &Host, ranges: &[Range<usize>], weights: Option<&[f32]>) -> Vec<f64> {
    let largest = weights.map_or(1.0, |weights| f64::from(weights.iter().copied().fold(0.0, f32::max)));
    per_unit(
        ranges,
        #[inline(always)]
        |_, range| {
            let mut order: Vec<usize> = range.clone().collect();
            order.sort_by_key(|&t| indices[t]);
            let (mut squared, mut most) = (0.0, 0.0);
            let mut sum = vec![0.0_f64; e.columns()];
            for same in order.chunk_by(|&t, &s| indices[t] == indices[s]) {
                most += total_length(e, same.iter().copied());
                sum.fill(0.0);
                for &t in same {
                    sum.iter_mut().zip(e.row(t)).for_each(|(sum, x)| *sum += f64::from(*x));
                }
                squared += match weights {
                    None => sum.iter().map(|x| x * x).sum::<f64>(),
                    Some(weights) => {
                        let first = indices[same[0]] as usize * e.columns();
                        sum.iter().zip(&weights[first..]).map(|(x, w)| x * x * f64::from(*w)).sum()
                    }
                };
            }
            squared + SLACK * largest * most * most
        },
    )
}

/// The inner product of a table's gradient with Σ_s l_s ⊗ r_s, whose rows are the table's: Σ_{t,s} l_s[indices[t]] ⟨e_t, r_s⟩.
pub fn table_with_product(
    (indices, e, ranges): (&[u32], &Host, &[Range<usize>]),
    (left, right, others): (&Host, &Host, &[Range<usize>]),
) -> Vec<f64> {
    per_unit(
        ranges,
        #[inline(always)]
        |unit, range| {
            let other = &others[unit];
            let gram = gram((e, range), (right, other));
            let mut inner = 0.0;
            for (t, gram) in range.clone().zip(gram.chunks_exact(other.len().max(1))) {
                let column = indices[t] as usize;
                inner +=
                    other.clone().zip(gram).map(|(s, g)| f64::from(left.row(s)[column] * g)).sum::<f64>();
            }
            let most = total_length(e, range.clone());
            inner + 2.0 * SLACK * most * longest(left, right, other)
        },
    )
}

/// The inner product of the gradients of two uses of one table.
pub fn table_with_table(
    (indices, e, ranges): (&[u32], &Host, &[Range<usize>]),
    (other_indices, f, others): (&[u32], &Host, &[Range<usize>]),
) -> Vec<f64> {
    per_unit(
        ranges,
        #[inline(always)]
        |unit, range| {
            let other = &others[unit];
            let pairs = range.clone().flat_map(|t| other.clone().map(move |s| (t, s)));
            let met = pairs.filter(|&(t, s)| indices[t] == other_indices[s]);
            let (mut inner, mut most) = (0.0, 0.0);
            for (t, s) in met {
                inner += f64::from(dot(e.row(t), f.row(s)));
                most += length(e.row(t)) * length(f.row(s));
            }
            inner + SLACK * most
        },
    )
}

/// The sum of the rows of each range, or of a ⊙ e: one row for each range.
pub fn row_sums(a: Option<&Host>, e: &Host, ranges: &[Range<usize>]) -> Host {
    let columns = e.columns();
    let sums = ranges.par_iter().flat_map_iter(|range| {
        widest(
            #[inline(always)]
            || {
                let mut sums = vec![0.0_f64; columns];
                for t in range.clone() {
                    match a {
                        Some(a) => {
                            for ((sum, x), y) in sums.iter_mut().zip(a.row(t)).zip(e.row(t)) {
                                *sum += f64::from(x * y);
                            }
                        }
                        None => sums.iter_mut().zip(e.row(t)).for_each(|(sum, x)| *sum += f64::from(*x)),
                    }
                }
                sums.into_iter().map(|x| x as f32)
            },
        )
    });
    Host::from_vec(ranges.len(), columns, sums.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_rows_are_added_up_each_for_itself() {
        let rows = std::array::from_fn(|i| std::array::from_fn(|lane| (100 * i + lane) as f32));
        assert_eq!(totals(&rows), std::array::from_fn(|i| (1600 * i + 120) as f32));
    }
}
