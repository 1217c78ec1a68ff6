//! Layer-wise contribution propagation (LCP): how much each token contributes to each coordinate of
//! the released embedding, computed from the weights alone.
//!
//! Input i of a linear layer contributes the share r_ij = |W_ij| / Σ_k |W_kj| to output j, so the
//! shares of an output sum to 1. Through a chain of layers, contributions multiply, R ← R r, and
//! still sum to 1. Attention mixes tokens with weights that depend on the text; here the weights
//! are given ([`AttentionMap`]): averaged over the heads, as in the published method, or separately
//! for each, where the value columns of a head use that head's weights. With one average for all
//! heads, every output depends on the tokens in the same shares. Residual sums, normalizations and
//! activations are skipped, as in the published method.

mod attention;

pub use attention::{AttentionMap, attention_of, positional};

use crate::layer::feed_forward::Gate;
use crate::layer::linear::Linear;
use crate::{Error, Model, Parameters, Result};
use nalgebra::DMatrix;

/// The shares r, `[inputs, outputs]`; each column sums to 1.
pub fn shares(layer: &Linear, parameters: &Parameters) -> Result<DMatrix<f64>> {
    let weight = parameters.value(layer.weight);
    let values = DMatrix::from_row_slice(weight.rows(), weight.columns(), &weight.to_vec()?);
    let mut shares = values.map(|w| f64::from(w).abs());
    if !layer.inputs_first {
        shares = shares.transpose();
    }
    let even = 1.0 / layer.inputs.max(1) as f64;
    for mut column in shares.column_iter_mut() {
        let total = column.sum();
        // An output whose weights are all zero depends equally on all inputs.
        column
            .iter_mut()
            .for_each(|share| *share = if total > 0.0 { *share / total } else { even });
    }
    Ok(shares)
}

/// Contributions of tokens to the coordinates of the released embedding, `[tokens, outputs]`. Each
/// column sums to 1.
pub fn token_contributions(model: &Model, map: &AttentionMap) -> Result<DMatrix<f64>> {
    let (Some(block), Some(sanitizer)) = (model.network.blocks.last(), &model.network.sanitizer)
    else {
        return Err(Error::Request(
            "contributions need a transformer block and a sanitizer".into(),
        ));
    };
    let attention = &block.attention;
    // The values of head h, weighted by its attention.
    let mixed = DMatrix::from_fn(map.tokens, attention.heads * attention.width, |token, column| {
        map.weight(column / attention.width, token)
    });
    let mut contributions = mixed * shares(&attention.output, &model.parameters)?;
    let feed_forward = &block.feed_forward;
    let wide = match &feed_forward.gate {
        Gate::Absent => shares(&feed_forward.up, &model.parameters)?,
        // Each factor of the gated product gets half.
        Gate::Layer(gate) => {
            (shares(&feed_forward.up, &model.parameters)? + shares(gate, &model.parameters)?) * 0.5
        }
        Gate::Fused => {
            let both = shares(&feed_forward.up, &model.parameters)?;
            let inner = both.ncols() / 2;
            (both.columns(0, inner) + both.columns(inner, inner)) * 0.5
        }
    };
    contributions = contributions * wide * shares(&feed_forward.down, &model.parameters)?;
    for layer in &sanitizer.encoder {
        contributions *= shares(layer, &model.parameters)?;
    }
    Ok(contributions)
}
