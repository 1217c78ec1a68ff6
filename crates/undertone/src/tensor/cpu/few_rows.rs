//! Products with few rows on the left, as when texts are continued token by token, or with few
//! columns on the right, as of LoRA's A.
//!
//! The time is that of reading the larger side once, so nothing is packed: each element is an inner
//! product of a row and a column that lie along k. Six rows meet four columns at a time.

use super::dots::{HEIGHT, WIDTH, all_pairs};
use super::level::arch;
use super::view::{Update, View};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

const MOST_ROWS: usize = 32;
const MOST_COLUMNS: usize = 16;
/// Multiplications from which two threads are faster than one.
const WORTH_SPLITTING: usize = 200_000;

/// Whether both sides lie along k and the left one has few rows.
pub fn suits(left: &View, right: &View) -> bool {
    left.rows <= MOST_ROWS && left.column_stride == 1 && right.row_stride == 1
}

/// Whether the left side lies along k and the right one has few columns.
pub fn suits_columns(left: &View, right: &View) -> bool {
    left.rows > MOST_ROWS
        && right.columns <= MOST_COLUMNS
        && left.columns >= 4 * MOST_COLUMNS
        && left.column_stride == 1
}

/// `out (+)= scale · left · right`; sizes were checked by the caller.
pub fn multiply(
    out: &mut [f32],
    stride: usize,
    how: Update,
    scale: f32,
    left: View,
    right: View,
    parallel: bool,
) {
    let (m, n) = (left.rows, right.columns);
    if !parallel || m * n * left.columns <= WORTH_SPLITTING {
        let rows = Strided { out, stride, columns: n };
        return arch().dispatch(Dots { rows, count: [m, n], first: 0, how, scale, left, right });
    }
    let width = n.div_ceil(4 * rayon::current_num_threads()).next_multiple_of(WIDTH);
    // Each task has its own columns of every row.
    let mut pieces: Vec<Vec<&mut [f32]>> =
        (0..n.div_ceil(width)).map(|_| Vec::with_capacity(m)).collect();
    for row in out.chunks_mut(stride).take(m) {
        row[..n].chunks_mut(width).zip(&mut pieces).for_each(|(part, piece)| piece.push(part));
    }
    pieces.into_par_iter().enumerate().for_each(|(i, rows)| {
        let (first, count) = (i * width, [m, width.min(n - i * width)]);
        arch().dispatch(Dots { rows, count, first, how, scale, left, right });
    });
}

/// The same where the right side has few columns, and lies in whatever way.
pub fn multiply_columns(
    out: &mut [f32],
    stride: usize,
    how: Update,
    scale: f32,
    left: View,
    right: View,
    parallel: bool,
) {
    let (m, k, n) = (left.rows, left.columns, right.columns);
    let mut along = Vec::new();
    if right.row_stride != 1 {
        along.reserve(n * k);
        for column in 0..n {
            let numbers = right.values[column * right.column_stride..].iter();
            along.extend(numbers.step_by(right.row_stride).take(k));
        }
    }
    let right = match right.row_stride {
        1 => right,
        _ => View::new(&along, n, k, k).transposed(),
    };
    let tasks = match parallel && m * n * k > WORTH_SPLITTING {
        true => 4 * rayon::current_num_threads(),
        false => 1,
    };
    let height = m.div_ceil(tasks).next_multiple_of(HEIGHT);
    let task = |(i, out): (usize, &mut [f32])| {
        let first = i * height;
        let left = View {
            values: &left.values[first * left.row_stride..],
            rows: height.min(m - first),
            ..left
        };
        let rows = Strided { out, stride, columns: n };
        let count = [left.rows, n];
        arch().dispatch(Dots { rows, count, first: 0, how, scale, left, right });
    };
    let pieces = out.par_chunks_mut(height * stride).take(m.div_ceil(height)).enumerate();
    if tasks == 1 {
        out.chunks_mut(height * stride).take(1).enumerate().for_each(task);
    } else {
        pieces.for_each(task);
    }
}

/// Rows of the output that are written.
trait Rows {
    fn row(&mut self, row: usize) -> &mut [f32];
}

impl Rows for Vec<&mut [f32]> {
    #[inline(always)]
    fn row(&mut self, row: usize) -> &mut [f32] {
        self[row]
    }
}

/// Rows that begin `stride` apart.
struct Strided<'a> {
    out: &'a mut [f32],
    stride: usize,
    columns: usize,
}

impl Rows for Strided<'_> {
    #[inline(always)]
    fn row(&mut self, row: usize) -> &mut [f32] {
        &mut self.out[row * self.stride..][..self.columns]
    }
}

/// A rectangle of the output.
struct Dots<'v, R> {
    rows: R,
    /// Of rows and columns.
    count: [usize; 2],
    /// The right side's column that the rectangle begins with.
    first: usize,
    how: Update<'v>,
    scale: f32,
    left: View<'v>,
    right: View<'v>,
}

impl<R: Rows> WithSimd for Dots<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { mut rows, count: [height, width], first, how, scale, left, right } = self;
        let k = left.columns;
        let column = |j: usize| &right.values[(first + j) * right.column_stride..][..k];
        let row = |i: usize| &left.values[i * left.row_stride..][..k];
        let (high, wide) = (height.div_ceil(HEIGHT), width.div_ceil(WIDTH));
        for block in 0..high * wide {
            // The larger side is read once.
            let (i, j) = match width >= height {
                true => (block % high * HEIGHT, block / high * WIDTH),
                false => (block / wide * HEIGHT, block % wide * WIDTH),
            };
            // Beyond the edge the last row or column is taken again, and its result is not used.
            let a = std::array::from_fn(|d| row((i + d).min(height - 1)));
            let b = std::array::from_fn(|d| column((j + d).min(width - 1)));
            let sums = all_pairs(simd, a, b, None);
            for (d, sums) in sums.iter().enumerate().take(height - i) {
                for (c, (out, sum)) in rows.row(i + d)[j..].iter_mut().zip(sums).enumerate() {
                    *out = match how {
                        Update::Overwrite => scale * sum,
                        Update::Add => scale * sum + *out,
                        Update::Bias(row) => scale * sum + row[first + j + c],
                    };
                }
            }
        }
    }
}
