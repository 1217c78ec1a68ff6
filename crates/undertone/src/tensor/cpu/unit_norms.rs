//! Norms and inner products of gradients that are never formed: those of some rows of a batch, one result for each range of rows.
//!
//! For rows t of inputs a and output gradients e, the gradient of a weight is G = Σ_t e_t ⊗ a_t, and
//! ‖G‖² = Σ_{t,s} ⟨a_t, a_s⟩ ⟨e_t, e_s⟩ needs only two products of size n × n. Where G is smaller than that, blocks of it are formed.
//!
//! A norm that is too small would let an example through that is larger than its bound, so every result is an *upper* bound: it
//! includes what rounding can have taken away, [`SLACK`] of the sum Σ ‖a_t‖‖e_t‖ that bounds ‖G‖ in any case.

use super::few_rows::four_by_four;
use super::matmul::{Update, View, multiply};
use super::simd::{dot, widest};
use crate::tensor::Host;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;

/// Five times the error of our products (2e-7 of Σ|aᵢbᵢ|).
const SLACK: f64 = 1e-6;
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

/// For each range an upper bound of ‖Σ_t e_t ⊗ a_t‖².
pub fn products(a: &Host, e: &Host, ranges: &[Range<usize>]) -> Vec<f64> {
    let (d, p) = (a.columns(), e.columns());
    let mut tasks = Vec::new();
    for (unit, range) in ranges.iter().enumerate() {
        if range.len() * (d + p) < d * p {
            tasks.extend((0..range.len()).step_by(BLOCK).map(|first| (unit, Some(first), 0..0)));
        } else {
            let width = (FORMED / d.max(1)).max(16);
            let blocks = (0..p).step_by(width).map(|first| (unit, None, first..p.min(first + width)));
            tasks.extend(blocks);
        }
    }
    let parts: Vec<f64> = tasks
        .par_iter()
        .map(|(unit, first, columns)| {
            let range = &ranges[*unit];
            match first {
                Some(first) => Arch::new().dispatch(GramBlock { a, e, range, first: *first }),
                None => widest(
                    #[inline(always)]
                    || formed_block(a, e, range, columns.clone()),
                ),
            }
        })
        .collect();
    let mut squared = vec![0.0; ranges.len()];
    for ((unit, _, _), part) in tasks.iter().zip(parts) {
        squared[*unit] += part;
    }
    let most = per_unit(
        ranges,
        #[inline(always)]
        |_, range| longest(a, e, range),
    );
    squared.iter().zip(most).map(|(squared, most)| squared.max(0.0) + 2.0 * SLACK * most * most).collect()
}

/// The share in ‖G‖² of a block of rows with itself and, twice, with all later rows of the range.
struct GramBlock<'a> {
    a: &'a Host,
    e: &'a Host,
    range: &'a Range<usize>,
    first: usize,
}

impl WithSimd for GramBlock<'_> {
    type Output = f64;

    /// Four rows meet four others at a time; neither Gram matrix is written down.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let Self { a, e, range, first } = self;
        let last = range.end - 1;
        let block = range.start + first..range.end.min(range.start + first + BLOCK);
        let mut sum = 0.0;
        for i in block.step_by(4) {
            for j in (i..range.end).step_by(4) {
                // Beyond the end the last row is taken again, and its products are not used.
                let four = |t: usize| [t, t + 1, t + 2, t + 3].map(|t| t.min(last));
                let (t, s) = (four(i), four(j));
                let x = four_by_four(simd, t.map(|t| a.row(t)), s.map(|s| a.row(s)));
                let y = four_by_four(simd, t.map(|t| e.row(t)), s.map(|s| e.row(s)));
                let (height, width) = (4.min(range.end - i), 4.min(range.end - j));
                let mut part = 0.0;
                for (x, y) in x[..height].iter().zip(&y[..height]) {
                    for (x, y) in x[..width].iter().zip(&y[..width]) {
                        part += f64::from(*x) * f64::from(*y);
                    }
                }
                sum += if i == j { part } else { 2.0 * part };
            }
        }
        sum
    }
}

/// The squares of some rows of G.
#[inline(always)]
fn formed_block(a: &Host, e: &Host, range: &Range<usize>, columns: Range<usize>) -> f64 {
    let d = a.columns();
    let mut formed = vec![0.0; columns.len() * d];
    let e = part(e, range, columns);
    multiply(&mut formed, d, Update::Overwrite, 1.0, e.transposed(), rows(a, range), false);
    let mut sum = 0.0;
    for row in formed.chunks(d.max(1)) {
        sum += f64::from(dot(row, row));
    }
    sum
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
            let (height, width) = (range.len(), other.len());
            let mut grams = [vec![0.0; height * width], vec![0.0; height * width]];
            for (gram, (x, y)) in grams.iter_mut().zip([(a, b), (e, f)]) {
                let (left, right) = (rows(x, range), rows(y, other));
                multiply(gram, width, Update::Overwrite, 1.0, left, right.transposed(), false);
            }
            let inner = f64::from(dot(&grams[0], &grams[1]));
            inner + 2.0 * SLACK * longest(a, e, range) * longest(b, f, other)
        },
    )
}

/// The gradient of a table: row `indices[t]` has e_t added. For each range an upper bound of its squared norm.
pub fn table_rows(indices: &[u32], e: &Host, ranges: &[Range<usize>]) -> Vec<f64> {
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
                squared += sum.iter().map(|x| x * x).sum::<f64>();
            }
            squared + SLACK * most * most
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
            let mut gram = vec![0.0; range.len() * other.len()];
            let (x, y) = (rows(e, range), rows(right, other));
            multiply(&mut gram, other.len(), Update::Overwrite, 1.0, x, y.transposed(), false);
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
