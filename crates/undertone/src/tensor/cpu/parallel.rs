//! Splitting rows over the cores.

use super::simd::widest;
use rayon::prelude::*;

/// Runs something on one of the threads that compute. Each operation on all cores then begins at
/// once: from another thread it would wake one of them and sleep until it is done, which takes
/// longer than many of them do.
pub fn on_worker<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| body())
}

/// Below this many numbers one thread is faster than two.
const WORTH_SPLITTING: usize = 32_768;

/// How many rows of `columns` numbers make one task: enough to hide its cost, few enough to keep
/// every core busy.
pub fn rows_per_task(rows: usize, columns: usize) -> usize {
    if rows * columns < WORTH_SPLITTING {
        return rows.max(1);
    }
    rows.div_ceil(4 * rayon::current_num_threads()).max(1)
}

/// Calls `body(first_row, rows)` on runs of whole rows of `out`, on all cores.
pub fn rows(out: &mut [f32], columns: usize, body: impl Fn(usize, &mut [f32]) + Sync) {
    if columns == 0 || out.is_empty() {
        return;
    }
    let task = rows_per_task(out.len() / columns, columns);
    out.par_chunks_mut(task * columns).enumerate().for_each(|(i, chunk)| {
        widest(
            #[inline(always)]
            || body(i * task, chunk),
        )
    });
}

/// The same for an output of one number per row that costs `work` numbers to make.
pub fn numbers(out: &mut [f32], work: usize, body: impl Fn(usize, &mut [f32]) + Sync) {
    let task = rows_per_task(out.len(), work);
    out.par_chunks_mut(task).enumerate().for_each(|(i, chunk)| {
        widest(
            #[inline(always)]
            || body(i * task, chunk),
        )
    });
}

/// The same over two outputs of different width that advance together.
pub fn rows2(
    (first, first_columns): (&mut [f32], usize),
    (second, second_columns): (&mut [f32], usize),
    body: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    if first_columns == 0 || second_columns == 0 || first.is_empty() {
        return;
    }
    let task = rows_per_task(first.len() / first_columns, first_columns);
    first
        .par_chunks_mut(task * first_columns)
        .zip(second.par_chunks_mut(task * second_columns))
        .enumerate()
        .for_each(|(i, (a, b))| {
            widest(
                #[inline(always)]
                || body(i * task, a, b),
            )
        });
}

/// Calls `body` on each piece, on all cores.
pub fn each<T: Send>(pieces: Vec<T>, body: impl Fn(T) + Sync) {
    if pieces.len() == 1 {
        return pieces.into_iter().for_each(|piece| {
            widest(
                #[inline(always)]
                || body(piece),
            )
        });
    }
    pieces.into_par_iter().for_each(|piece| {
        widest(
            #[inline(always)]
            || body(piece),
        )
    });
}

/// Adds up over rows: each task adds its rows to a vector of its own, and these are summed in a
/// fixed order, so that the result does not depend on timing.
pub fn sum_over_rows(
    row_count: usize,
    columns: usize,
    body: impl Fn(std::ops::Range<usize>, &mut [f32]) + Sync,
) -> Vec<f32> {
    let task = rows_per_task(row_count, columns).max(1);
    let partial: Vec<Vec<f32>> = (0..row_count.div_ceil(task))
        .into_par_iter()
        .map(|i| {
            let mut sums = vec![0.0; columns];
            widest(
                #[inline(always)]
                || body(i * task..((i + 1) * task).min(row_count), &mut sums),
            );
            sums
        })
        .collect();
    let mut total = vec![0.0; columns];
    for sums in partial {
        for (t, s) in total.iter_mut().zip(sums) {
            *t += s;
        }
    }
    total
}
