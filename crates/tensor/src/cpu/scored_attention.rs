//! Attention with soft-capped scores, relative-position terms or a sliding window: Gemma,
//! ModernBERT, MPNet.
//!
//! Like [`attention`](super::attention), the backward pass recomputes the probabilities from the
//! log-sum-exp of each row. A block of rows computes the scores of the keys that any of its rows
//! attends to, so that work and memory grow with the window and not with the sequence.

use super::attention::softmax;
use super::matmul::multiply;
use super::parallel;
use super::simd::{dot, exp};
use super::soft_cap::precise_tanh;
use super::view::{Update, View};
use crate::{AttentionShape, Dropout, Host, Relative, RelativeGradients};
use std::ops::Range;

/// Query rows processed together.
const BLOCK: usize = 64;

/// Blocks of rows of a sequence, each with the union of the keys that its rows attend to.
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

/// Splits a matrix under construction into the rows of each sequence.
fn by_sequence<'a>(
    mut values: &'a mut [f32],
    shape: &AttentionShape,
    columns: usize,
) -> Vec<&'a mut [f32]> {
    let lengths = shape.starts.windows(2).map(|window| window[1] - window[0]);
    lengths
        .map(|length| {
            let (own, rest) = std::mem::take(&mut values).split_at_mut(length * columns);
            values = rest;
            own
        })
        .collect()
}

/// Adds the relative-position terms to the scores of query i for the keys that it attends to.
#[inline(always)]
fn add_relative(
    scores: &mut [f32],
    relative: Option<&Relative<Host>>,
    (start, head, i): (usize, usize, usize),
    seen: Range<usize>,
) {
    let Some(relative) = relative else { return };
    let of_query = relative.of_queries.row(start + i);
    for (score, j) in scores.iter_mut().zip(seen) {
        let column = relative.column(head, i, j);
        let of_key = relative.of_keys.map_or(0.0, |keys| keys.row(start + j)[column]);
        *score += of_query[column] + of_key;
    }
}

/// The attention output `[tokens, heads · width]` and the log-sum-exp of each row's scores
/// `[tokens, heads]`.
pub fn forward(
    qkv: &Host,
    relative: Option<&Relative<Host>>,
    shape: &AttentionShape,
) -> (Host, Host) {
    let (tokens, heads, columns) = (qkv.rows(), shape.heads, shape.heads * shape.width);
    let mut log_sums = vec![0.0; tokens * heads];
    let output = Host::build(tokens, columns, |out| {
        let (outs, sums) =
            (by_sequence(out, shape, columns), by_sequence(&mut log_sums, shape, heads));
        let pieces = shape.starts.iter().copied().zip(outs.into_iter().zip(sums)).collect();
        parallel::each(
            pieces,
            #[inline(always)]
            |(start, (out, sums))| forward_sequence(qkv, relative, shape, start, out, sums),
        );
    });
    (output, Host::from_vec(tokens, heads, log_sums))
}

#[inline(always)]
fn forward_sequence(
    qkv: &Host,
    relative: Option<&Relative<Host>>,
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
                add_relative(row, relative, (start, head, i), seen.clone());
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

/// The gradients of one sequence, initialized to zero.
struct Piece<'a> {
    start: usize,
    qkv: &'a mut [f32],
    of_queries: &'a mut [f32],
    of_keys: &'a mut [f32],
}

/// Gradients with respect to queries, keys and values, in the layout of `qkv`, and to the
/// relative-position terms; `saved` is the output of the forward pass.
pub fn backward(
    qkv: &Host,
    relative: Option<&Relative<Host>>,
    saved: (&Host, &Host),
    output_gradient: &Host,
    shape: &AttentionShape,
) -> RelativeGradients<Host> {
    let (tokens, columns) = (qkv.rows(), shape.columns());
    let of_queries = relative.map_or(0, |relative| relative.of_queries.columns());
    let of_keys = relative.and_then(|relative| relative.of_keys).map_or(0, Host::columns);
    let zeros = |columns: usize| Host::from_vec(tokens, columns, vec![0.0; tokens * columns]);
    let mut gradients = RelativeGradients {
        qkv: zeros(columns),
        of_queries: zeros(of_queries),
        of_keys: (of_keys > 0).then(|| zeros(of_keys)),
    };
    let mut no_keys = [];
    let key_values = match &mut gradients.of_keys {
        Some(keys) => keys.values_mut(),
        None => &mut no_keys[..],
    };
    let of_qkv = by_sequence(gradients.qkv.values_mut(), shape, columns);
    let of_queries = by_sequence(gradients.of_queries.values_mut(), shape, of_queries);
    let of_keys = by_sequence(key_values, shape, of_keys);
    let parts = of_qkv.into_iter().zip(of_queries.into_iter().zip(of_keys));
    let pieces = shape
        .starts
        .iter()
        .zip(parts)
        .map(|(&start, (qkv, (of_queries, of_keys)))| Piece { start, qkv, of_queries, of_keys });
    parallel::each(
        pieces.collect(),
        #[inline(always)]
        |piece| backward_sequence(qkv, relative, saved, output_gradient, shape, piece),
    );
    gradients
}

#[inline(always)]
fn backward_sequence(
    qkv: &Host,
    relative: Option<&Relative<Host>>,
    (output, log_sums): (&Host, &Host),
    output_gradient: &Host,
    shape: &AttentionShape,
    piece: Piece,
) {
    let Piece { start, qkv: out, of_queries, of_keys } = piece;
    let (width, columns, scale) = (shape.width, shape.columns(), shape.scale());
    let length = out.len() / columns;
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
                add_relative(p, relative, (start, head, i), seen.clone());
                cap_scores(p, shape.scores.soft_cap);
                for (j, (p, g)) in p.iter_mut().zip(&mut *g).enumerate() {
                    let kept =
                        mask.map_or(1.0, |mask| mask.factor((i * length + seen.start + j) as u32));
                    let t = shape.scores.soft_cap.map_or(0.0, |cap| *p / cap);
                    let probability = exp(*p - log_sum);
                    *g = probability * (kept * *g - along) * (1.0 - t * t);
                    *p = probability * kept;
                }
                let Some(relative) = relative else { continue };
                for (j, g) in seen.zip(&*g) {
                    let column = relative.column(head, i, j);
                    of_queries[i * relative.of_queries.columns() + column] += g;
                    if let Some(keys) = relative.of_keys {
                        of_keys[j * keys.columns() + column] += g;
                    }
                }
            }
            let p = View::new(&probabilities, rows.len(), count, count);
            let g = View::new(&gradient, rows.len(), count, count);
            let first_key = keys.start * columns;
            // Every block that attends to a key contributes to the gradients of keys and values.
            let of_value = &mut out[first_key + shape.value(head)..];
            multiply(of_value, columns, Update::Add, 1.0, p.transposed(), above, false);
            let of_key = &mut out[first_key + shape.key(head)..];
            multiply(of_key, columns, Update::Add, scale, g.transposed(), query, false);
            let of_query = &mut out[rows.start * columns + shape.query(head)..];
            multiply(of_query, columns, overwrite, scale, g, key, false);
        }
    }
}

/// Attention of the new tokens of one sequence, whose keys and values are the last of `keys` and
/// `values`.
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
