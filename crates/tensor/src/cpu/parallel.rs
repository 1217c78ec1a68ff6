//! Parallel execution of operations on all cores.

use super::simd::widest;
use super::team;
use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Runs a computation of many operations so that each operation starts without delay: with threads
/// that stay [awake](`team`), or otherwise on a rayon thread. It must not wait for other threads.
pub fn awake<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    // From a thread outside rayon's pool, each operation would wake one of the pool's threads and
    // sleep until it is done, which takes longer than many operations do.
    team::lead(body).unwrap_or_else(|body| rayon::scope(|_| body()))
}

/// Calls `body` with each index below `count`, on all cores.
pub fn tasks(count: usize, body: impl Fn(usize) + Sync) {
    if count < 2 {
        (0..count).for_each(body);
    } else if !team::run(count, &body) {
        (0..count).into_par_iter().with_max_len(1).for_each(&body);
    }
}

/// Calls `body` with the index of each piece and the piece, on all cores.
pub fn pieces<T: Send>(pieces: impl Iterator<Item = T>, body: impl Fn(usize, T) + Sync) {
    let pieces: Vec<Mutex<Option<T>>> = pieces.map(|piece| Mutex::new(Some(piece))).collect();
    tasks(pieces.len(), |i| {
        let piece = pieces[i].lock().unwrap_or_else(PoisonError::into_inner).take();
        body(i, piece.expect("each task runs once"));
    });
}

/// Collects the results of `body` for each index below `count`, on all cores.
pub fn map<T: Send>(count: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    map_with_space(count, |i, _| body(i))
}

/// Like [`map`], with scratch space that later tasks reuse.
pub fn map_with_space<T: Send>(
    count: usize,
    body: impl Fn(usize, &mut Vec<f32>) -> T + Sync,
) -> Vec<T> {
    let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
    let spaces = Mutex::new(Vec::new());
    pieces(results.iter_mut(), |i, result| {
        let space = || spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = space().pop().unwrap_or_default();
        *result = Some(body(i, &mut own));
        space().push(own);
    });
    results.into_iter().map(|result| result.expect("each task runs once")).collect()
}

/// With fewer values than this, one thread is faster than two.
const WORTH_SPLITTING: usize = 32_768;

/// Number of rows of `columns` values per task: enough to amortize its overhead, few enough to keep
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
    pieces(out.chunks_mut(task * columns), |i, chunk| {
        widest(
            #[inline(always)]
            || body(i * task, chunk),
        )
    });
}

/// Like [`rows`], for an output of one value per row, each of which takes `work` input values to
/// compute.
pub fn numbers(out: &mut [f32], work: usize, body: impl Fn(usize, &mut [f32]) + Sync) {
    let task = rows_per_task(out.len(), work);
    pieces(out.chunks_mut(task), |i, chunk| {
        widest(
            #[inline(always)]
            || body(i * task, chunk),
        )
    });
}

/// Like [`rows`], over two outputs of different widths that advance together.
pub fn rows2(
    (first, first_columns): (&mut [f32], usize),
    (second, second_columns): (&mut [f32], usize),
    body: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    if first_columns == 0 || second_columns == 0 || first.is_empty() {
        return;
    }
    let task = rows_per_task(first.len() / first_columns, first_columns);
    let firsts = first.chunks_mut(task * first_columns);
    pieces(firsts.zip(second.chunks_mut(task * second_columns)), |i, (a, b)| {
        widest(
            #[inline(always)]
            || body(i * task, a, b),
        )
    });
}

/// Calls `body` on each piece, on all cores, with the widest instructions.
pub fn each<T: Send>(all: Vec<T>, body: impl Fn(T) + Sync) {
    pieces(all.into_iter(), |_, piece| {
        widest(
            #[inline(always)]
            || body(piece),
        )
    });
}

/// Sums over rows: each task adds its rows to its own vector, and the vectors are summed in a fixed
/// order, so that the result does not depend on timing.
pub fn sum_over_rows(
    row_count: usize,
    columns: usize,
    body: impl Fn(std::ops::Range<usize>, &mut [f32]) + Sync,
) -> Vec<f32> {
    let task = rows_per_task(row_count, columns).max(1);
    let partial = map(row_count.div_ceil(task), |i| {
        let mut sums = vec![0.0; columns];
        widest(
            #[inline(always)]
            || body(i * task..((i + 1) * task).min(row_count), &mut sums),
        );
        sums
    });
    let mut total = vec![0.0; columns];
    for sums in partial {
        for (t, s) in total.iter_mut().zip(sums) {
            *t += s;
        }
    }
    total
}
