//! Attention whose scores are soft-capped, or in which a token sees a window: Gemma, ModernBERT.
//!
//! As [`attention`](super::attention), with the probabilities computed again from the log-sum-exp of
//! each row in the backward pass. A block of rows computes the scores of the keys that any of its
//! rows sees, so that work and memory grow with the window and not with the sequence.

use super::attention::softmax;
use super::matmul::multiply;
use super::parallel;
use super::simd::{dot, exp};
use super::soft_cap::precise_tanh;
use super::view::{Update, View};
use crate::tensor::{AttentionShape, Dropout, Host};
use std::ops::Range;

/// Rows of queries that are handled together.
const BLOCK: usize = 64;

/// Blocks of rows of a sequence, each with the keys that its rows see together.
fn blocks(
    shape: &AttentionShape,
    length: usize,
) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    (0..length.div_ceil(BLOCK)).map(move |block| {
        let rows = block * BLOCK..((block + 1) * BLOCK).min(length);
        let keys = shape.seen(rows.start, length).start..shape.seen(rows.end - 1, length).end;
        (rows, keys)
    })
}

/// The part of a packed matrix that belongs to one head of one sequence.
fn part(x: &Host, rows: Range<usize>, column: usize, width: usize) -> View<'_> {
    let span = &x.span()[rows.start * x.stride() + column..];
    View::new(span, rows.len(), width, x.stride())
}

#[inline(always)]
fn cap_scores(scores: &mut [f32], cap: Option<f32>) {
    if let Some(cap) = cap {
        scores.iter_mut().for_each(|s| *s = cap * precise_tanh(*s / cap));
    }
}

#[inline(always)]
fn drop_out(row: &mut [f32], mask: Option<Dropout>, first: usize) {
    if let Some(mask) = mask {
        for (j, p) in row.iter_mut().enumerate() {
            *p *= mask.factor((first + j) as u32);
        }
    }
}

/// The mixed values `[tokens, heads · width]` and the log-sum-exp of each row's scores `[tokens,
/// heads]`.
pub fn forward(qkv: &Host, shape: &AttentionShape) -> (Host, Host) {
    let (tokens, heads, columns) = (qkv.rows(), shape.heads, shape.heads * shape.width);
    let mut log_sums = vec![0.0; tokens * heads];
    let output = Host::build(tokens, columns, |mut out| {
        let mut sums = &mut log_sums[..];
        let mut pieces = Vec::new();
        for window in shape.starts.windows(2) {
            let length = window[1] - window[0];
            let (own, rest) = std::mem::take(&mut out).split_at_mut(length * columns);
            let (own_sums, rest_sums) = std::mem::take(&mut sums).split_at_mut(length * heads);
            pieces.push((window[0], own, own_sums));
            (out, sums) = (rest, rest_sums);
        }
        parallel::each(
            pieces,
            #[inline(always)]
            |(start, out, sums)| forward_sequence(qkv, shape, start, out, sums),
        );
    });
    (output, Host::from_vec(tokens, heads, log_sums))
}

#[inline(always)]
fn forward_sequence(
    qkv: &Host,
    shape: &AttentionShape,
    start: usize,
    out: &mut [f32],
    log_sums: &mut [f32],
) {
    let (heads, width) = (shape.heads, shape.width);
    let length = log_sums.len() / heads;
    let mut scores = Vec::new();
    for (rows, keys) in blocks(shape, length) {
        scores.resize(rows.len() * keys.len(), 0.0);
        for head in 0..heads {
            let mask = shape.mask(start, head);
            let at = |range: &Range<usize>| start + range.start..start + range.end;
            let query = part(qkv, at(&rows), shape.query(head), width);
            let key = part(qkv, at(&keys), shape.key(head), width);
            let value = part(qkv, at(&keys), shape.value(head), width);
            let (scale, key) = (shape.scale(), key.transposed());
            multiply(&mut scores, keys.len(), Update::Overwrite, scale, query, key, false);
            for (i, row) in scores.chunks_exact_mut(keys.len()).enumerate() {
                let i = rows.start + i;
                let seen = shape.seen(i, length);
                row[..seen.start - keys.start].fill(0.0);
                row[seen.end - keys.start..].fill(0.0);
                let row = &mut row[seen.start - keys.start..seen.end - keys.start];
                cap_scores(row, shape.scores.soft_cap);
                log_sums[i * heads + head] = softmax(row);
                drop_out(row, mask, i * length + seen.start);
            }
            let mixed = View::new(&scores, rows.len(), keys.len(), keys.len());
            let target = &mut out[rows.start * heads * width + head * width..];
            multiply(target, heads * width, Update::Overwrite, 1.0, mixed, value, false);
        }
    }
}

/// Gradient of queries, keys and values, side by side as they came.
pub fn backward(
    qkv: &Host,
    output: &Host,
    log_sums: &Host,
    output_gradient: &Host,
    shape: &AttentionShape,
) -> Host {
    let columns = shape.columns();
    Host::build(qkv.rows(), columns, |mut out| {
        let mut pieces = Vec::new();
        for window in shape.starts.windows(2) {
            let length = window[1] - window[0];
            let (own, rest) = std::mem::take(&mut out).split_at_mut(length * columns);
            pieces.push((window[0], own));
            out = rest;
        }
        parallel::each(
            pieces,
            #[inline(always)]
            |(start, out)| {
                backward_sequence(qkv, output, log_sums, output_gradient, shape, start, out);
            },
        );
    })
}

#[inline(always)]
fn backward_sequence(
    qkv: &Host,
    output: &Host,
    log_sums: &Host,
    output_gradient: &Host,
    shape: &AttentionShape,
    start: usize,
    out: &mut [f32],
) {
    let (width, columns, scale) = (shape.width, shape.columns(), shape.scale());
    let length = out.len() / columns;
    // Keys and values get a share from every block that sees them.
    out.fill(0.0);
    let (mut probabilities, mut gradient) = (Vec::new(), Vec::new());
    for (rows, keys) in blocks(shape, length) {
        probabilities.resize(rows.len() * keys.len(), 0.0);
        gradient.resize(rows.len() * keys.len(), 0.0);
        for head in 0..shape.heads {
            let mask = shape.mask(start, head);
            let at = |range: &Range<usize>| start + range.start..start + range.end;
            let query = part(qkv, at(&rows), shape.query(head), width);
            let key = part(qkv, at(&keys), shape.key(head), width);
            let value = part(qkv, at(&keys), shape.value(head), width);
            let above = part(output_gradient, at(&rows), head * width, width);
            let count = keys.len();
            let overwrite = Update::Overwrite;
            multiply(&mut probabilities, count, overwrite, scale, query, key.transposed(), false);
            multiply(&mut gradient, count, overwrite, 1.0, above, value.transposed(), false);
            let both = probabilities.chunks_exact_mut(count).zip(gradient.chunks_exact_mut(count));
            for (i, (p, g)) in both.enumerate() {
                let (i, row) = (rows.start + i, start + rows.start + i);
                let seen = shape.seen(i, length);
                let inside = seen.start - keys.start..seen.end - keys.start;
                for values in [&mut *p, &mut *g] {
                    values[..inside.start].fill(0.0);
                    values[inside.end..].fill(0.0);
                }
                let here = head * width..(head + 1) * width;
                let along = dot(&output.row(row)[here.clone()], &output_gradient.row(row)[here]);
                let log_sum = log_sums.row(row)[head];
                let (p, g) = (&mut p[inside.clone()], &mut g[inside]);
                cap_scores(p, shape.scores.soft_cap);
                for (j, (p, g)) in p.iter_mut().zip(g).enumerate() {
                    let kept =
                        mask.map_or(1.0, |mask| mask.factor((i * length + seen.start + j) as u32));
                    let t = shape.scores.soft_cap.map_or(0.0, |cap| *p / cap);
                    let probability = exp(*p - log_sum);
                    *g = probability * (kept * *g - along) * (1.0 - t * t);
                    *p = probability * kept;
                }
            }
            let p = View::new(&probabilities, rows.len(), count, count);
            let g = View::new(&gradient, rows.len(), count, count);
            let of_keys = keys.start * columns;
            let values = &mut out[of_keys + shape.value(head)..];
            multiply(values, columns, Update::Add, 1.0, p.transposed(), above, false);
            let of_key = &mut out[of_keys + shape.key(head)..];
            multiply(of_key, columns, Update::Add, scale, g.transposed(), query, false);
            let of_query = &mut out[rows.start * columns + shape.query(head)..];
            multiply(of_query, columns, overwrite, scale, g, key, false);
        }
    }
}

/// New tokens of one sequence, whose keys and values are the last of `keys` and `values`.
#[inline(always)]
pub fn cached(
    qkv: &Host,
    shape: &AttentionShape,
    start: usize,
    keys: &[f32],
    values: &[f32],
    out: &mut [f32],
) {
    let (heads, width) = (shape.heads, shape.width);
    let kept = shape.key_heads * width;
    let (new, all) = (out.len() / (heads * width), keys.len() / kept);
    let mut scores = Vec::new();
    out.fill(0.0);
    for (i, out) in out.chunks_exact_mut(heads * width).enumerate() {
        let queries = qkv.row(start + i);
        let window = shape.scores.window.unwrap_or(all).max(1);
        let last = all - new + i + 1;
        let seen = last.saturating_sub(window)..last;
        for (head, out) in out.chunks_exact_mut(width).enumerate() {
            let column = shape.key(head) - heads * width;
            let query = &queries[shape.query(head)..][..width];
            scores.clear();
            for position in seen.clone() {
                let key = &keys[position * kept + column..][..width];
                scores.push(shape.scale() * dot(query, key));
            }
            cap_scores(&mut scores, shape.scores.soft_cap);
            softmax(&mut scores);
            for (p, position) in scores.iter().zip(seen.clone()) {
                let value = &values[position * kept + column..][..width];
                out.iter_mut().zip(value).for_each(|(m, v)| *m = p.mul_add(*v, *m));
            }
        }
    }
}
