//! Products with few rows on the left, as when texts are continued token by token.
//!
//! The time is that of reading the weights once, so they are not packed. Four rows meet four columns at a time, in sixteen
//! running sums along k.

use super::matmul::{Update, View};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

const MOST_ROWS: usize = 32;

/// Whether both sides lie along k and the left one has few rows.
pub fn suits(left: &View, right: &View) -> bool {
    left.rows <= MOST_ROWS && left.column_stride == 1 && right.row_stride == 1
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
    let tasks = if parallel && m * n * left.columns > 200_000 { 4 * rayon::current_num_threads() } else { 1 };
    let width = n.div_ceil(tasks).next_multiple_of(4);
    // Each task has its own columns of every row.
    let mut pieces: Vec<Vec<&mut [f32]>> = (0..n.div_ceil(width)).map(|_| Vec::with_capacity(m)).collect();
    for row in out.chunks_mut(stride).take(m) {
        row[..n].chunks_mut(width).zip(&mut pieces).for_each(|(part, piece)| piece.push(part));
    }
    let task = |(i, mut rows): (usize, Vec<&mut [f32]>)| {
        Arch::new().dispatch(Columns { rows: &mut rows, first: i * width, how, scale, left, right });
    };
    if pieces.len() == 1 {
        pieces.into_iter().enumerate().for_each(task);
    } else {
        pieces.into_par_iter().enumerate().for_each(task);
    }
}

/// Some columns of every row of the output.
struct Columns<'a, 'b, 'v> {
    rows: &'a mut [&'b mut [f32]],
    first: usize,
    how: Update,
    scale: f32,
    left: View<'v>,
    right: View<'v>,
}

impl WithSimd for Columns<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, first, how, scale, left, right } = self;
        let count = rows.first().map_or(0, |row| row.len());
        let k = left.columns;
        let column = |j: usize| &right.values[(first + j) * right.column_stride..][..k];
        let row = |i: usize| &left.values[i * left.row_stride..][..k];
        for j in (0..count).step_by(4) {
            for i in (0..rows.len()).step_by(4) {
                // Beyond the edge the last row or column is taken again, and its result is not used.
                let a = [0, 1, 2, 3].map(|d| row((i + d).min(rows.len() - 1)));
                let b = [0, 1, 2, 3].map(|d| column((j + d).min(count - 1)));
                let sums = four_by_four(simd, a, b);
                for (row, sums) in rows[i..].iter_mut().zip(&sums) {
                    for (out, sum) in row[j..].iter_mut().zip(sums) {
                        *out = if how == Update::Add { scale * sum + *out } else { scale * sum };
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn four_by_four<S: Simd>(simd: S, rows: [&[f32]; 4], columns: [&[f32]; 4]) -> [[f32; 4]; 4] {
    let [(a0, t0), (a1, t1), (a2, t2), (a3, t3)] = rows.map(|row| S::as_simd_f32s(row));
    let [(b0, u0), (b1, u1), (b2, u2), (b3, u3)] = columns.map(|column| S::as_simd_f32s(column));
    let zero = simd.splat_f32s(0.0);
    let mut sums = [[zero; 4]; 4];
    let steps = a0.len();
    let (a1, a2, a3) = (&a1[..steps], &a2[..steps], &a3[..steps]);
    let (b0, b1, b2, b3) = (&b0[..steps], &b1[..steps], &b2[..steps], &b3[..steps]);
    for s in 0..steps {
        let b = [b0[s], b1[s], b2[s], b3[s]];
        let a = [a0[s], a1[s], a2[s], a3[s]];
        for i in 0..4 {
            for j in 0..4 {
                sums[i][j] = simd.mul_add_e_f32s(a[i], b[j], sums[i][j]);
            }
        }
    }
    let (ends_a, ends_b) = ([t0, t1, t2, t3], [u0, u1, u2, u3]);
    let mut out = [[0.0; 4]; 4];
    for i in 0..4 {
        for j in 0..4 {
            let rest: f32 = ends_a[i].iter().zip(ends_b[j]).map(|(x, y)| x * y).sum();
            out[i][j] = simd.reduce_sum_f32s(sums[i][j]) + rest;
        }
    }
    out
}
