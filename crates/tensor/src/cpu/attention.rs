//! Scaled dot-product attention over packed sequences.
//!
//! Queries, keys and values lie side by side in one matrix of (heads + 2 · key heads) · width
//! columns. The backward pass recomputes the probabilities from the log-sum-exp of each row, a
//! block of rows at a time, instead of storing them: memory grows linearly with the number of
//! tokens, not quadratically. Each sequence is one task.

use super::matmul::multiply;
use super::parallel;
use super::simd::{dot, exp, max, sum};
use super::view::{Update, View};
use crate::{AttentionShape, Dropout, Host};
use std::ops::Range;

/// Query rows processed together.
const BLOCK: usize = 128;

impl AttentionShape<'_> {
    /// Blocks of rows of a sequence, last first, each with the number of keys that it attends to:
    /// the first block attends to every key.
    fn blocks(&self, length: usize) -> impl Iterator<Item = (Range<usize>, usize)> + use<> {
        let causal = self.causal;
        (0..length.div_ceil(BLOCK)).rev().map(move |b| {
            let rows = b * BLOCK..((b + 1) * BLOCK).min(length);
            let keys = if causal { rows.end } else { length };
            (rows, keys)
        })
    }

    fn visible(&self, row: usize, keys: usize) -> usize {
        if self.causal { row + 1 } else { keys }
    }
}

/// Splits `values` into the rows of each sequence.
fn by_sequence<'a>(
    mut values: &'a mut [f32],
    starts: &[usize],
    columns: usize,
) -> Vec<&'a mut [f32]> {
    let mut pieces = Vec::with_capacity(starts.len().saturating_sub(1));
    for window in starts.windows(2) {
        let (piece, rest) = values.split_at_mut((window[1] - window[0]) * columns);
        pieces.push(piece);
        values = rest;
    }
    pieces
}

/// The part of a packed matrix that belongs to one head of one sequence.
fn part<'a>(x: &'a Host, rows: Range<usize>, column: usize, width: usize) -> View<'a> {
    let stride = x.stride();
    let span = &x.span()[rows.start * stride + column..];
    View::new(span, rows.len(), width, stride)
}

/// The attention output `[tokens, heads · width]` and the log-sum-exp of each row's scores
/// `[tokens, heads]`.
pub fn forward(qkv: &Host, shape: &AttentionShape) -> (Host, Host) {
    let (tokens, heads, width) = (qkv.rows(), shape.heads, shape.width);
    let mut log_sums = vec![0.0; tokens * heads];
    let output = Host::build(tokens, heads * width, |out| {
        let outs = by_sequence(out, shape.starts, heads * width);
        let sums = by_sequence(&mut log_sums, shape.starts, heads);
        let pieces = shape.starts.iter().copied().zip(outs.into_iter().zip(sums)).collect();
        parallel::each(
            pieces,
            #[inline(always)]
            |(start, (out, sums))| forward_sequence(qkv, shape, start, out, sums),
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
    let mut scores = vec![0.0; length.min(BLOCK) * length];
    for head in 0..heads {
        let mask = shape.mask(start, head);
        for (rows, keys) in shape.blocks(length) {
            let query = part(qkv, start + rows.start..start + rows.end, shape.query(head), width);
            let key = part(qkv, start..start + keys, shape.key(head), width);
            let value = part(qkv, start..start + keys, shape.value(head), width);
            multiply(
                &mut scores,
                keys,
                Update::Overwrite,
                shape.scale(),
                query,
                key.transposed(),
                false,
            );
            for (i, row) in scores.chunks_exact_mut(keys).take(rows.len()).enumerate() {
                let (seen, unseen) = row.split_at_mut(shape.visible(rows.start + i, keys));
                log_sums[(rows.start + i) * heads + head] = softmax(seen);
                unseen.fill(0.0);
                if let Some(mask) = mask {
                    drop_out(seen, mask, (rows.start + i) * length);
                }
            }
            let mixed = View::new(&scores, rows.len(), keys, keys);
            let target = &mut out[rows.start * heads * width + head * width..];
            multiply(target, heads * width, Update::Overwrite, 1.0, mixed, value, false);
        }
    }
}

/// Softmax in place; returns the log-sum-exp.
#[inline(always)]
pub fn softmax(row: &mut [f32]) -> f32 {
    let largest = max(row);
    row.iter_mut().for_each(|s| *s = exp(*s - largest));
    let total = sum(row);
    let factor = 1.0 / total;
    row.iter_mut().for_each(|s| *s *= factor);
    largest + total.ln()
}

#[inline(always)]
fn drop_out(row: &mut [f32], mask: Dropout, first: usize) {
    for (j, p) in row.iter_mut().enumerate() {
        *p *= mask.factor((first + j) as u32);
    }
}

/// Gradient with respect to queries, keys and values, in the layout of `qkv`.
pub fn backward(
    qkv: &Host,
    output: &Host,
    log_sums: &Host,
    output_gradient: &Host,
    shape: &AttentionShape,
) -> Host {
    let columns = shape.columns();
    Host::build(qkv.rows(), columns, |out| {
        let outs = by_sequence(out, shape.starts, columns);
        let pieces = shape.starts.iter().copied().zip(outs).collect();
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
    let (width, columns) = (shape.width, shape.columns());
    let length = out.len() / columns;
    let group = shape.heads / shape.key_heads;
    let mut probabilities = vec![0.0; length.min(BLOCK) * length];
    let mut gradient = vec![0.0; length.min(BLOCK) * length];
    for head in 0..shape.heads {
        let mask = shape.mask(start, head);
        for (rows, keys) in shape.blocks(length) {
            // The first block of a group's first head covers every key, so it can overwrite; all
            // others add.
            let first = head % group == 0 && rows.end == length;
            let how = if first { Update::Overwrite } else { Update::Add };
            let query = part(qkv, start + rows.start..start + rows.end, shape.query(head), width);
            let key = part(qkv, start..start + keys, shape.key(head), width);
            let value = part(qkv, start..start + keys, shape.value(head), width);
            let mixed_gradient =
                part(output_gradient, start + rows.start..start + rows.end, head * width, width);
            multiply(
                &mut probabilities,
                keys,
                Update::Overwrite,
                shape.scale(),
                query,
                key.transposed(),
                false,
            );
            multiply(
                &mut gradient,
                keys,
                Update::Overwrite,
                1.0,
                mixed_gradient,
                value.transposed(),
                false,
            );
            let both = probabilities.chunks_exact_mut(keys).zip(gradient.chunks_exact_mut(keys));
            for (i, (p, g)) in both.take(rows.len()).enumerate() {
                let row = start + rows.start + i;
                let seen = shape.visible(rows.start + i, keys);
                let log_sum = log_sums.row(row)[head];
                let here = head * width..(head + 1) * width;
                let along = dot(&output.row(row)[here.clone()], &output_gradient.row(row)[here]);
                p[seen..].fill(0.0);
                g[seen..].fill(0.0);
                let (p, g) = (&mut p[..seen], &mut g[..seen]);
                match mask {
                    None => {
                        for (p, g) in p.iter_mut().zip(g) {
                            *p = exp(*p - log_sum);
                            *g = *p * (*g - along);
                        }
                    }
                    Some(mask) => {
                        let first = (rows.start + i) * length;
                        for (j, (p, g)) in p.iter_mut().zip(g).enumerate() {
                            let kept = mask.factor((first + j) as u32);
                            let probability = exp(*p - log_sum);
                            *g = probability * (kept * *g - along);
                            *p = probability * kept;
                        }
                    }
                }
            }
            let p = View::new(&probabilities, rows.len(), keys, keys);
            let g = View::new(&gradient, rows.len(), keys, keys);
            let scale = shape.scale();
            multiply(
                &mut out[shape.value(head)..],
                columns,
                how,
                1.0,
                p.transposed(),
                mixed_gradient,
                false,
            );
            multiply(
                &mut out[shape.key(head)..],
                columns,
                how,
                scale,
                g.transposed(),
                query,
                false,
            );
            let target = &mut out[rows.start * columns + shape.query(head)..];
            multiply(target, columns, Update::Overwrite, scale, g, key, false);
        }
    }
}
