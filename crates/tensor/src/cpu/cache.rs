//! Attention of new tokens to all earlier tokens of their sequence, whose keys and values are
//! cached.

use super::attention::softmax;
use super::matmul::multiply;
use super::parallel;
use super::scored_attention;
use super::simd::dot;
use super::view::{Update, View};
use crate::{AttentionShape, Host};

/// Keys and values of one layer, as one pair of growing lists per sequence.
#[derive(Clone, Debug, Default)]
pub struct HostCache {
    sequences: Vec<(Vec<f32>, Vec<f32>)>,
}

impl HostCache {
    pub fn new(sequences: usize) -> Self {
        Self { sequences: vec![Default::default(); sequences] }
    }

    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.sequences.len()
    }

    /// Adds empty sequences behind the others.
    pub fn add(&mut self, count: usize) {
        self.sequences.resize(self.sequences.len() + count, Default::default());
    }

    /// Replaces sequence `i` by a copy of the former sequence `origins[i]`.
    pub fn select(&mut self, origins: &[usize]) {
        self.sequences = origins.iter().map(|&origin| self.sequences[origin].clone()).collect();
    }

    /// Appends the keys and values of the new tokens, then lets their queries attend to everything
    /// up to themselves.
    pub fn attend(&mut self, qkv: &Host, shape: &AttentionShape) -> Host {
        let (heads, width) = (shape.heads, shape.width);
        let kept = shape.key_heads * width;
        for (sequence, window) in self.sequences.iter_mut().zip(shape.starts.windows(2)) {
            for row in window[0]..window[1] {
                let (keys, values) = qkv.row(row)[heads * width..].split_at(kept);
                sequence.0.extend_from_slice(keys);
                sequence.1.extend_from_slice(values);
            }
        }
        let columns = heads * width;
        Host::build(qkv.rows(), columns, |mut out| {
            let mut pieces = Vec::new();
            for (sequence, window) in self.sequences.iter().zip(shape.starts.windows(2)) {
                let (piece, rest) =
                    std::mem::take(&mut out).split_at_mut((window[1] - window[0]) * columns);
                out = rest;
                pieces.push((window[0], sequence, piece));
            }
            parallel::each(
                pieces,
                #[inline(always)]
                |(start, (keys, values), out)| {
                    attend_sequence(qkv, shape, start, keys, values, out);
                },
            );
        })
    }
}

#[inline(always)]
fn attend_sequence(
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
    if shape.scores.soft_cap.is_some() || shape.scores.window.is_some_and(|window| window < all) {
        return scored_attention::cached(qkv, shape, start, keys, values, out);
    }
    if new == 1 {
        return attend_one(shape, &qkv.row(start)[..heads * width], keys, values, out);
    }
    let mut scores = vec![0.0; new * all];
    for head in 0..heads {
        let column = shape.key(head) - heads * width;
        let query =
            View::new(&qkv.span()[start * qkv.stride() + head * width..], new, width, qkv.stride());
        let key = View::new(&keys[column..], all, width, kept);
        let value = View::new(&values[column..], all, width, kept);
        multiply(
            &mut scores,
            all,
            Update::Overwrite,
            shape.scale(),
            query,
            key.transposed(),
            false,
        );
        for (i, row) in scores.chunks_exact_mut(all).enumerate() {
            let (seen, unseen) = row.split_at_mut(all - new + i + 1);
            softmax(seen);
            unseen.fill(0.0);
        }
        let mixed = View::new(&scores, new, all, all);
        multiply(
            &mut out[head * width..],
            heads * width,
            Update::Overwrite,
            1.0,
            mixed,
            value,
            false,
        );
    }
}

/// Attention of a single new token. Keys and values, which come from main memory, are read
/// sequentially and only once, with all heads processed at each position; everything else is in
/// cache.
#[inline(always)]
fn attend_one(
    shape: &AttentionShape,
    queries: &[f32],
    keys: &[f32],
    values: &[f32],
    out: &mut [f32],
) {
    let (heads, width) = (shape.heads, shape.width);
    let kept = shape.key_heads * width;
    let (all, group) = (keys.len() / kept, heads / shape.key_heads);
    let mut scores = vec![0.0; heads * all];
    for (position, key) in keys.chunks_exact(kept).enumerate() {
        for (head, query) in queries.chunks_exact(width).enumerate() {
            let key = &key[head / group * width..][..width];
            scores[head * all + position] = shape.scale() * dot(query, key);
        }
    }
    // Loops instead of iterators: code that is inlined here is compiled for wide registers.
    for row in scores.chunks_exact_mut(all) {
        softmax(row);
    }
    out.fill(0.0);
    for (position, value) in values.chunks_exact(kept).enumerate() {
        for (head, mixed) in out.chunks_exact_mut(width).enumerate() {
            let p = scores[head * all + position];
            let value = &value[head / group * width..][..width];
            for (m, v) in mixed.iter_mut().zip(value) {
                *m = p.mul_add(*v, *m);
            }
        }
    }
}
