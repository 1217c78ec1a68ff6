//! QK-norm (Qwen3): RMSNorm of each head's queries and keys, before the rotary embedding.

use super::norm::{self, Norm};
use crate::factor::Receiver;
use crate::pass::Pass;
use std::sync::Arc;
use undertone_tensor::{Matrix, Result};

/// One normalization shared by all query heads, and one by all key heads.
#[derive(Clone, Debug)]
pub struct HeadNorms {
    pub queries: Norm,
    pub keys: Norm,
}

/// Activations saved for the backward pass: for queries, then for keys.
pub type Saved = [norm::Saved; 2];

/// Normalizes each head of width `width` in `x`, `[tokens, heads · width]`.
pub fn forward(
    norm: &Norm,
    pass: &Pass,
    x: &Matrix,
    width: usize,
) -> Result<(Matrix, norm::Saved)> {
    let (normed, saved) = norm.forward(pass, &x.reshape_to_columns(width)?, None)?;
    Ok((normed.reshape_to_columns(x.columns())?, saved))
}

/// Emits the factors, with one row per head and token, and returns the gradient of `x`.
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
