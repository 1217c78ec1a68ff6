//! Weights packed once for many products with few rows, as in token-by-token generation.
//!
//! The running time of such a product is that of reading the weights. Weights are stored in
//! *panels* of sixteen columns, with one cache line for each row of the weights, so that they are
//! read sequentially. Each line is multiplied with up to sixteen rows of the left side, which stay
//! in the L1 cache.

use super::level::arch;
use super::parallel;
use super::simd::prefetch;
use super::view::{Update, View};
use crate::Shape;
use crate::pages::ask_for_large;
use pulp::{Simd, WithSimd};

const WIDTH: usize = 16;
/// With more rows than this, the ordinary product is faster.
pub const MOST_ROWS: usize = 48;

/// One cache line: a row of a panel.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Line([f32; WIDTH]);

/// A matrix of `rows` × `columns` in panels; the last panel is padded with zeros.
#[derive(Clone, Debug)]
pub struct Panels {
    rows: usize,
    columns: usize,
    lines: Vec<Line>,
}

impl Panels {
    /// Packs a matrix.
    pub fn of(matrix: View) -> Self {
        let (rows, columns) = (matrix.rows, matrix.columns);
        let count = rows * columns.div_ceil(WIDTH);
        let mut lines = Vec::with_capacity(count);
        ask_for_large(lines.spare_capacity_mut());
        lines.resize(count, Line([0.0; WIDTH]));
        parallel::pieces(lines.chunks_mut(rows.max(1)), |panel, lines| {
            let first = panel * WIDTH;
            for (row, line) in lines.iter_mut().enumerate() {
                for (d, out) in line.0.iter_mut().enumerate().take(columns - first) {
                    *out =
                        matrix.values[row * matrix.row_stride + (first + d) * matrix.column_stride];
                }
            }
        });
        Self { rows, columns, lines }
    }

    /// Shape of the matrix.
    pub(crate) fn shape(&self) -> Shape {
        [self.rows, self.columns]
    }

    /// `out (+)= left · self`, where `stride` is the distance between rows of `out`.
    pub fn multiply(&self, out: &mut [f32], stride: usize, how: Update, left: View) {
        assert_eq!(left.columns, self.rows, "inner sizes of a product");
        let how = match how {
            Update::Bias(_) => how.prepare(out, stride, [left.rows, self.columns]),
            other => other,
        };
        if left.rows == 0 {
            return;
        }
        if self.rows == 0 {
            how.prepare(out, stride, [left.rows, self.columns]);
            return;
        }
        let tasks = if left.rows * self.lines.len() > 10_000 {
            4 * rayon::current_num_threads()
        } else {
            1
        };
        let panels = self.columns.div_ceil(WIDTH).div_ceil(tasks).max(1);
        // Each task writes its own columns of every row.
        let count = self.columns.div_ceil(WIDTH).div_ceil(panels);
        let mut pieces: Vec<Vec<&mut [f32]>> =
            (0..count).map(|_| Vec::with_capacity(left.rows)).collect();
        for row in out.chunks_mut(stride).take(left.rows) {
            let parts = row[..self.columns].chunks_mut(panels * WIDTH);
            parts.zip(&mut pieces).for_each(|(part, piece)| piece.push(part));
        }
        let left = Columnwise::of(left);
        let both = pieces.into_iter().zip(self.lines.chunks(panels * self.rows));
        parallel::pieces(both, |_, (mut rows, lines)| {
            arch().dispatch(Task { rows: &mut rows, how, lines, left: &left });
        });
    }
}

/// The left side in groups of up to sixteen rows, each group stored column by column.
struct Columnwise {
    groups: Vec<(usize, Vec<f32>)>,
    columns: usize,
}

impl Columnwise {
    fn of(left: View) -> Self {
        let mut groups = Vec::new();
        let mut first = 0;
        while first < left.rows {
            // The heights for which there is a kernel; rows past the edge are zeros.
            let height =
                [1, 2, 4, 8, 16].into_iter().find(|&h| h >= left.rows - first).unwrap_or(16);
            let mut values = vec![0.0; height * left.columns];
            for (i, row) in (first..left.rows.min(first + height)).enumerate() {
                for (column, out) in values[i..].iter_mut().step_by(height).enumerate() {
                    *out = left.values[row * left.row_stride + column * left.column_stride];
                }
            }
            groups.push((height, values));
            first += height;
        }
        Self { groups, columns: left.columns }
    }
}

struct Task<'a, 'b> {
    rows: &'a mut [&'b mut [f32]],
    how: Update<'a>,
    lines: &'a [Line],
    left: &'a Columnwise,
}

impl WithSimd for Task<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match WIDTH * size_of::<f32>() / size_of::<S::f32s>() {
            4 => self.multiply::<S, 4>(simd),
            2 => self.multiply::<S, 2>(simd),
            _ => self.multiply::<S, 1>(simd),
        }
    }
}

impl Task<'_, '_> {
    /// With few rows, `PARTS` registers of each line are multiplied together: a sum waits for its
    /// previous multiplication, and only other sums can fill the time.
    #[inline(always)]
    fn multiply<S: Simd, const PARTS: usize>(self, simd: S) {
        for (panel, lines) in self.lines.chunks_exact(self.left.columns).enumerate() {
            let mut first = 0;
            for (height, left) in &self.left.groups {
                let end = self.rows.len().min(first + height);
                let place = (&mut self.rows[first..end], panel * WIDTH, self.how);
                match height {
                    1 => panel_product::<S, 1, PARTS>(simd, place, lines, left),
                    2 => panel_product::<S, 2, PARTS>(simd, place, lines, left),
                    4 => panel_product::<S, 4, PARTS>(simd, place, lines, left),
                    8 => panel_product::<S, 8, 1>(simd, place, lines, left),
                    _ => panel_product::<S, 16, 1>(simd, place, lines, left),
                }
                first = end;
            }
        }
    }
}

/// Prefetch distance in cache lines; the hardware prefetcher stops at page boundaries.
const AHEAD: usize = 32;

/// Multiplies one panel with up to `HEIGHT` rows, and writes or adds the result to these rows,
/// starting at `column`. Reads `PARTS` registers of each line at a time.
#[inline(always)]
fn panel_product<S: Simd, const HEIGHT: usize, const PARTS: usize>(
    simd: S,
    (rows, column, how): (&mut [&mut [f32]], usize, Update),
    lines: &[Line],
    left: &[f32],
) {
    let lanes = size_of::<S::f32s>() / size_of::<f32>();
    let (left, _) = left.as_chunks::<HEIGHT>();
    let steps = lines.len().min(left.len());
    let (lines, left) = (&lines[..steps], &left[..steps]);
    for first in (0..WIDTH / lanes).step_by(PARTS) {
        let mut sums = [[simd.splat_f32s(0.0); PARTS]; HEIGHT];
        // A loop instead of iterators, whose functions the compiler may call for each line: the
        // sums would be in memory.
        for k in 0..steps {
            let (line, x) = (&lines[k], &left[k]);
            prefetch((line as *const Line).wrapping_add(AHEAD));
            let weights = &S::as_simd_f32s(&line.0).0[first..first + PARTS];
            for i in 0..HEIGHT {
                let x = simd.splat_f32s(x[i]);
                for part in 0..PARTS {
                    sums[i][part] = simd.mul_add_e_f32s(x, weights[part], sums[i][part]);
                }
            }
        }
        // A copy, since a variable whose address is taken would be in memory throughout the loop
        // above.
        let finished = sums;
        let sums: &[f32] = bytemuck::cast_slice(finished.as_flattened());
        for (row, sums) in rows.iter_mut().zip(sums.chunks_exact(PARTS * lanes)) {
            for (out, sum) in row[column..].iter_mut().skip(first * lanes).zip(sums) {
                *out = if let Update::Add = how { *out + sum } else { *sum };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuLevel;
    use crate::cpu::matmul::multiply;

    #[test]
    fn panels_multiply_as_the_matrix_does() {
        CpuLevel::each(|_| {
            for (m, k, n) in
                [(1, 1, 1), (3, 5, 17), (16, 40, 16), (19, 33, 70), (40, 288, 300), (2, 0, 5)]
            {
                let number = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 25.0;
                let left: Vec<f32> = (0..m * k).map(number).collect();
                let right: Vec<f32> = (0..k * n).map(|i| number(i + 7)).collect();
                for transposed in [false, true] {
                    let right = if transposed {
                        View::new(&right, n, k, k).transposed()
                    } else {
                        View::new(&right, k, n, n)
                    };
                    let left = View::new(&left, m, k, k);
                    let (mut want, mut have) = (vec![1.0; m * n], vec![1.0; m * n]);
                    multiply(&mut want, n, Update::Add, 1.0, left, right, false);
                    Panels::of(right).multiply(&mut have, n, Update::Add, left);
                    for (want, have) in want.iter().zip(&have) {
                        assert!(
                            (want - have).abs() < 1e-3,
                            "{m} × {k} × {n}: {want} against {have}"
                        );
                    }
                }
            }
        });
    }
}
