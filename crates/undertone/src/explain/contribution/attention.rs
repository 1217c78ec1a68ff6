//! How much the token that is released looks at each token of its sequence, in the last block.

use crate::data::{Batch, Example};
use crate::model::{Model, Result};
use crate::tensor::Host;

/// A weight for each head and token; a head's weights are a distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionMap {
    /// Heads.
    pub heads: usize,
    /// Tokens.
    pub tokens: usize,
    /// Head after head.
    pub weights: Vec<f64>,
}

impl AttentionMap {
    /// Nothing yet.
    pub fn zeros(heads: usize, tokens: usize) -> Self {
        Self { heads, tokens, weights: vec![0.0; heads * tokens] }
    }

    /// Of a head and a token.
    pub fn weight(&self, head: usize, token: usize) -> f64 {
        self.weights[head * self.tokens + token]
    }

    /// Adds a sequence's weights, one row for each head; a longer sequence is cut.
    pub fn add(&mut self, weights: &Host, share: f64) {
        for head in 0..self.heads {
            // A record that is not finite adds nothing: the map's reach must hold for it too.
            if !weights.row(head).iter().all(|weight| weight.is_finite()) {
                continue;
            }
            for (token, weight) in weights.row(head).iter().take(self.tokens).enumerate() {
                self.weights[head * self.tokens + token] += share * f64::from(*weight);
            }
        }
    }

    /// Makes distributions of it again: what noise made negative is nothing, and a head that is
    /// left with nothing looks at all tokens alike.
    pub fn normalise(&mut self) {
        for head in self.weights.chunks_exact_mut(self.tokens.max(1)) {
            head.iter_mut().for_each(|w| *w = if w.is_finite() { w.max(0.0) } else { 0.0 });
            let total: f64 = head.iter().sum();
            let even = 1.0 / head.len() as f64;
            head.iter_mut().for_each(|w| *w = if total > 0.0 { *w / total } else { even });
        }
    }
}

/// The weights with which the first (or the last) token of each sequence looks at its sequence: one
/// row for each head.
pub fn attention_of(model: &Model, batch: &Batch, last_token: bool) -> Result<Vec<Host>> {
    model.last_attention(batch, last_token)
}

/// What the model does without any text: token embeddings are zero, and only positions are told
/// apart.
pub fn positional(model: &Model, tokens: usize, last_token: bool) -> Result<AttentionMap> {
    let mut blank = model.clone();
    let words = blank.network.embeddings.tokens;
    let parameter = blank.parameters.get_mut(words);
    let (rows, columns) = (parameter.value.rows(), parameter.value.columns());
    parameter.value =
        crate::tensor::Matrix::zeros(rows, columns).to_device(&parameter.value.device())?;
    let tokens = tokens.min(model.network.most_positions).max(1);
    let example = Example { tokens: vec![0; tokens], ..Example::default() };
    let heads = model.network.blocks.last().map_or(0, |block| block.attention.heads);
    let mut map = AttentionMap::zeros(heads, tokens);
    for weights in attention_of(&blank, &Batch::pack([&example]), last_token)? {
        map.add(&weights, 1.0);
    }
    map.normalise();
    Ok(map)
}
