//! Attention weights of the last block, from the token whose embedding is released.

use crate::data::{Batch, Example};
use crate::model::{Model, Result};
use crate::tensor::Host;

/// Attention weights `[heads, tokens]`; each head's weights are a distribution over the tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionMap {
    pub heads: usize,
    pub tokens: usize,
    /// Row-major, `[heads, tokens]`.
    pub weights: Vec<f64>,
}

impl AttentionMap {
    /// All weights zero.
    pub fn zeros(heads: usize, tokens: usize) -> Self {
        Self { heads, tokens, weights: vec![0.0; heads * tokens] }
    }

    /// The weight of one head and token.
    pub fn weight(&self, head: usize, token: usize) -> f64 {
        self.weights[head * self.tokens + token]
    }

    /// Adds `share` times a sequence's weights, `[heads, tokens]`; tokens beyond the map are
    /// dropped.
    pub fn add(&mut self, weights: &Host, share: f64) {
        for head in 0..self.heads {
            // Weights that are not finite add nothing, so that the map's sensitivity bound holds
            // for every example.
            if !weights.row(head).iter().all(|weight| weight.is_finite()) {
                continue;
            }
            for (token, weight) in weights.row(head).iter().take(self.tokens).enumerate() {
                self.weights[head * self.tokens + token] += share * f64::from(*weight);
            }
        }
    }

    /// Normalises each head to a distribution: weights that noise made negative become 0, and a
    /// head with no positive weight becomes uniform.
    pub fn normalise(&mut self) {
        for head in self.weights.chunks_exact_mut(self.tokens.max(1)) {
            head.iter_mut().for_each(|w| *w = if w.is_finite() { w.max(0.0) } else { 0.0 });
            let total: f64 = head.iter().sum();
            let even = 1.0 / head.len() as f64;
            head.iter_mut().for_each(|w| *w = if total > 0.0 { *w / total } else { even });
        }
    }
}

/// Attention weights of the last block from the first (or the last) token of each sequence, one
/// `[heads, tokens]` matrix a sequence.
pub fn attention_of(model: &Model, batch: &Batch, last_token: bool) -> Result<Vec<Host>> {
    model.last_attention(batch, last_token)
}

/// Attention weights without any text: token embeddings are set to zero, so that only positions
/// matter.
pub fn positional(model: &Model, tokens: usize, last_token: bool) -> Result<AttentionMap> {
    let mut blank = model.clone();
    let words = blank.network.embeddings.tokens;
    let parameter = blank.parameters.get_mut(words);
    let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
    parameter.value =
        crate::tensor::Matrix::zeros(rows, columns).to_device(&parameter.value.device())?;
    let tokens = tokens.min(model.network.max_positions).max(1);
    let example = Example { tokens: vec![0; tokens], ..Example::default() };
    let heads = model.network.blocks.last().map_or(0, |block| block.attention.heads);
    let mut map = AttentionMap::zeros(heads, tokens);
    for weights in attention_of(&blank, &Batch::pack([&example]), last_token)? {
        map.add(&weights, 1.0);
    }
    map.normalise();
    Ok(map)
}
