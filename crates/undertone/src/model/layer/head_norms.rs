//! QK-norm (Qwen3): RMSNorm of each head's queries and keys, before the rotary embedding.

use super::norm::{self, Norm};
use crate::model::factor::Receiver;
use crate::model::pass::Pass;
use crate::tensor::{Matrix, Result};
use std::sync::Arc;

/// One normalisation for all heads of queries, one for all heads of keys.
#[derive(Clone, Debug)]
pub struct HeadNorms {
    pub queries: Norm,
    pub keys: Norm,
}

/// Activations saved for the backward pass: of queries, then of keys.
pub type Saved = [norm::Saved; 2];

/// Normalises each head of width `width` in `x`, `[tokens, heads · width]`.
pub fn forward(
    norm: &Norm,
    pass: &Pass,
    x: &Matrix,
    width: usize,
) -> Result<(Matrix, norm::Saved)> {
    let (normed, saved) = norm.forward(pass, &x.reshape_to_columns(width)?, None)?;
    Ok((normed.reshape_to_columns(x.columns())?, saved))
}

/// Passes on the factors, with a row for each head of each token, and returns the gradient of `x`.
pub fn backward(
    norm: &Norm,
    pass: &Pass,
    saved: norm::Saved,
    output_gradient: &Matrix,
    width: usize,
    receiver: &mut dyn Receiver,
) -> Result<Matrix> {
    let (tokens, columns) = (output_gradient.rows() as u32, output_gradient.columns());
    let of_rows = (0..tokens).flat_map(|token| (0..columns / width).map(move |_| token));
    let of_rows = Arc::new(of_rows.collect::<Vec<u32>>());
    let by_head = output_gradient.reshape_to_columns(width)?;
    let gradient = norm.backward_of_rows(pass, saved, &by_head, Some(of_rows), receiver)?;
    gradient.reshape_to_columns(columns)
}
