//! Attention weights of the last block, from the token whose embedding is released.

use crate::{Model, Result};
use undertone_data::{Batch, Example};
use undertone_tensor::Host;

/// Attention weights `[heads, tokens]`; the weights of each head form a distribution over the
/// tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionMap {
    pub heads: usize,
    pub tokens: usize,
    /// Row-major, `[heads, tokens]`.
    pub weights: Vec<f64>,
}

impl AttentionMap {
    /// A map with all weights zero.
    pub fn zeros(heads: usize, tokens: usize) -> Self {
        Self { heads, tokens, weights: vec![0.0; heads * tokens] }
    }

    /// The weight of a head and token. A single head stands for all.
    pub fn weight(&self, head: usize, token: usize) -> f64 {
        let head = if self.heads == 1 { 0 } else { head };
        self.weights[head * self.tokens + token]
    }

    /// The mean over the heads, as a map with one head: again a distribution over the tokens.
    pub fn averaged(&self) -> Self {
        let mut map = Self::zeros(1, self.tokens);
        for head in self.weights.chunks_exact(self.tokens.max(1)) {
            let share = 1.0 / self.heads.max(1) as f64;
            map.weights.iter_mut().zip(head).for_each(|(sum, weight)| *sum += share * weight);
        }
        map
    }

    /// Adds `share` times the weights of a sequence, `[heads, tokens]`; tokens beyond the map are
    /// dropped.
    pub fn add(&mut self, weights: &Host, share: f64) {
        for head in 0..self.heads {
            // Each head adds at most a distribution, whatever the model computes, so the map's
            // sensitivity bound holds for every example.
            let total: f64 = weights.row(head).iter().map(|&weight| f64::from(weight)).sum();
            let is_share = |weight: &f32| *weight >= 0.0;
            if !(weights.row(head).iter().all(is_share) && total.is_finite()) {
                continue;
            }
            let share = share / total.max(1.0);
            for (token, weight) in weights.row(head).iter().take(self.tokens).enumerate() {
                self.weights[head * self.tokens + token] += share * f64::from(*weight);
            }
        }
    }

    /// Normalizes each head to a distribution: weights made negative by noise become 0, and a head
    /// without positive weights becomes uniform.
    pub fn normalize(&mut self) {
        for head in self.weights.chunks_exact_mut(self.tokens.max(1)) {
            head.iter_mut().for_each(|w| *w = if w.is_finite() { w.max(0.0) } else { 0.0 });
            let total: f64 = head.iter().sum();
            let even = 1.0 / head.len() as f64;
            head.iter_mut().for_each(|w| *w = if total > 0.0 { *w / total } else { even });
        }
    }
}

/// Attention weights of the last block from the first (or last) token of each sequence, one
/// `[heads, tokens]` matrix per sequence.
pub fn attention_of(model: &Model, batch: &Batch, last_token: bool) -> Result<Vec<Host>> {
    model.last_attention(batch, last_token)
}

/// Attention weights computed without text: token embeddings are set to zero, so only positions
/// matter.
pub fn positional(model: &Model, tokens: usize, last_token: bool) -> Result<AttentionMap> {
    let mut blank = model.clone();
    let words = blank.network.embeddings.tokens;
    let parameter = blank.parameters.get_mut(words);
    let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
    parameter.value =
        undertone_tensor::Matrix::zeros(rows, columns).to_device(&parameter.value.device())?;
    let tokens = tokens.min(model.network.max_positions).max(1);
    let example = Example { tokens: vec![0; tokens], ..Example::default() };
    let heads = model.network.blocks.last().map_or(0, |block| block.attention.heads);
    let mut map = AttentionMap::zeros(heads, tokens);
    for weights in attention_of(&blank, &Batch::pack([&example]), last_token)? {
        map.add(&weights, 1.0);
    }
    map.normalize();
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equation 10, averaged over the heads as published: a distribution, which one example moves
    /// by at most √2 over the number of examples.
    #[test]
    fn the_mean_over_heads_is_a_distribution() {
        let weights = vec![0.5, 0.5, 0.0, 0.1, 0.2, 0.7];
        let map = AttentionMap { heads: 2, tokens: 3, weights };
        let mean = map.averaged();
        assert_eq!((mean.heads, mean.tokens), (1, 3));
        for (have, want) in mean.weights.iter().zip([0.3, 0.35, 0.35]) {
            assert!((have - want).abs() < 1e-12);
        }
        // Every head reads the mean.
        assert_eq!(mean.weight(1, 2), mean.weight(0, 2));
        assert_eq!(map.weight(1, 2), 0.7);
    }

    /// Whatever a model computes, a head's weights are non-negative and sum to at most 1, so
    /// replacing an example moves them by at most √2.
    #[test]
    fn an_example_adds_no_more_than_a_distribution() {
        let cases = [
            ([f32::NAN, 0.5], [0.0, 0.0]),
            ([f32::INFINITY, 0.0], [0.0, 0.0]),
            ([-0.5, 1.5], [0.0, 0.0]),
            ([f32::MAX, f32::MIN], [0.0, 0.0]),
            ([f32::MAX, f32::MAX], [0.5, 0.5]),
            ([3.0, 1.0], [0.75, 0.25]),
            ([0.25, 0.5], [0.25, 0.5]),
            ([1e-45, 0.0], [f64::from(1e-45_f32), 0.0]),
        ];
        for (weights, expected) in cases {
            let mut map = AttentionMap::zeros(1, 2);
            map.add(&Host::from_vec(1, 2, weights.to_vec()), 1.0);
            assert_eq!(map.weights, expected, "{weights:?}");
        }
    }
}
