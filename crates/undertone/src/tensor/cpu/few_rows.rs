//! Products with few rows on the left, as when texts are continued token by token.
//!
//! The time is that of reading the weights once, so they are not packed. Six rows meet four columns
//! at a time.

use super::dots::{HEIGHT, WIDTH, all_pairs};
use super::level::arch;
use super::matmul::{Update, View};
use pulp::{Simd, WithSimd};
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
    let tasks = if parallel && m * n * left.columns > 200_000 {
        4 * rayon::current_num_threads()
    } else {
        1
    };
    let width = n.div_ceil(tasks).next_multiple_of(WIDTH);
    // Each task has its own columns of every row.
    let mut pieces: Vec<Vec<&mut [f32]>> =
        (0..n.div_ceil(width)).map(|_| Vec::with_capacity(m)).collect();
    for row in out.chunks_mut(stride).take(m) {
        row[..n].chunks_mut(width).zip(&mut pieces).for_each(|(part, piece)| piece.push(part));
    }
    let task = |(i, mut rows): (usize, Vec<&mut [f32]>)| {
        arch().dispatch(Columns { rows: &mut rows, first: i * width, how, scale, left, right });
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
        for j in (0..count).step_by(WIDTH) {
            for i in (0..rows.len()).step_by(HEIGHT) {
                // Beyond the edge the last row or column is taken again, and its result is not
                // used.
                let a = std::array::from_fn(|d| row((i + d).min(rows.len() - 1)));
                let b = std::array::from_fn(|d| column((j + d).min(count - 1)));
                let sums = all_pairs(simd, a, b, None);
                for (row, sums) in rows[i..].iter_mut().zip(&sums) {
                    for (out, sum) in row[j..].iter_mut().zip(sums) {
                        *out = if how == Update::Add { scale * sum + *out } else { scale * sum };
                    }
                }
            }
        }
    }
}
