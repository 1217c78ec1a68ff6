//! Products with few rows on the left, as in token-by-token generation.
//!
//! The running time is that of reading the weights once, so they are not packed. Six rows and four
//! columns are processed together.

use super::dots::{HEIGHT, WIDTH, all_pairs};
use super::level::arch;
use super::parallel;
use super::view::{Update, View};
use pulp::{Simd, WithSimd};

/// Products with more rows than this are packed.
pub const MOST_ROWS: usize = 32;
/// Number of multiplications above which two threads are faster than one.
const WORTH_SPLITTING: usize = 200_000;

/// Whether both sides are contiguous along k and the left one has few rows.
pub fn suits(left: &View, right: &View) -> bool {
    left.rows <= MOST_ROWS && left.column_stride == 1 && right.row_stride == 1
}

/// `out (+)= scale · left · right`; the caller has checked the shapes.
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
    // Each task writes its own columns of every row.
    let mut pieces: Vec<Vec<&mut [f32]>> =
        (0..n.div_ceil(width)).map(|_| Vec::with_capacity(m)).collect();
    for row in out.chunks_mut(stride).take(m) {
        row[..n].chunks_mut(width).zip(&mut pieces).for_each(|(part, piece)| piece.push(part));
    }
    parallel::pieces(pieces.into_iter(), |i, rows| {
        let (first, count) = (i * width, [m, width.min(n - i * width)]);
        arch().dispatch(Dots { rows, count, first, how, scale, left, right });
    });
}

/// The rows of the output to write.
trait Rows {
    fn row(&mut self, row: usize) -> &mut [f32];
}

impl Rows for Vec<&mut [f32]> {
    #[inline(always)]
    fn row(&mut self, row: usize) -> &mut [f32] {
        self[row]
    }
}

/// Rows at distance `stride`.
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
    /// Number of rows and columns.
    count: [usize; 2],
    /// The first column of the right side in the rectangle.
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
        for j in (0..width).step_by(WIDTH) {
            for i in (0..height).step_by(HEIGHT) {
                // Past the edge, the last row or column is repeated and its result is discarded.
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
}
