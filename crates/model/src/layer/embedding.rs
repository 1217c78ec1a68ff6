//! Token, position and segment embeddings, summed and normalized.

use super::norm::{self, Norm};
use crate::factor::{Factor, Receiver};
use crate::parameters::ParameterId;
use crate::pass::Pass;
use undertone_tensor::{self as tensor, Dropout, Matrix, Result};

/// Position of padding in models that have a row for it before that of the first position
/// (RoBERTa).
pub const PADDING: u32 = u32::MAX;

/// Embedding layer.
#[derive(Clone, Debug)]
pub struct Embeddings {
    /// Token embeddings, `[vocabulary, hidden]`.
    pub tokens: ParameterId,
    /// Scale of the token embeddings (Gemma: √hidden).
    pub scale: f32,
    /// Position embeddings, `[positions, hidden]`, and the row of the first position (RoBERTa's
    /// table starts with two unused rows).
    pub positions: Option<(ParameterId, u32)>,
    /// Segment (token type) embeddings, `[segments, hidden]`.
    pub segments: Option<ParameterId>,
    /// Normalization of the sum.
    pub norm: Option<Norm>,
    /// Dropout probability after the normalization.
    pub dropout: f32,
}

/// Indices and activations saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    segments: Vec<u32>,
    norm: Option<norm::Saved>,
    dropout: Option<Dropout>,
}

/// Index that distinguishes the embeddings' dropout mask.
const DROPOUT_SITE: u64 = u64::MAX;

impl Embeddings {
    /// Embeds the tokens, `[tokens, hidden]`. An empty `segments` means segment 0 for all tokens.
    pub fn forward(
        &self,
        pass: &Pass,
        tokens: &[u32],
        segments: &[u32],
    ) -> Result<(Matrix, Saved)> {
        let parameters = pass.parameters;
        let mut x = tensor::gather(parameters.value(self.tokens), tokens)?;
        if self.scale != 1.0 {
            x = tensor::scale_columns(&x, &vec![self.scale; x.columns()])?;
        }
        let mut saved = Saved {
            tokens: tokens.to_vec(),
            positions: Vec::new(),
            segments: Vec::new(),
            norm: None,
            dropout: pass.dropout(self.dropout, DROPOUT_SITE),
        };
        if let Some((table, first)) = self.positions {
            let row = |&position: &u32| match position {
                PADDING => first.saturating_sub(1),
                _ => position + first,
            };
            saved.positions = pass.positions.iter().map(row).collect();
            x = tensor::add(&x, &tensor::gather(parameters.value(table), &saved.positions)?)?;
        }
        if let Some(table) = self.segments {
            saved.segments =
                if segments.is_empty() { vec![0; tokens.len()] } else { segments.to_vec() };
            x = tensor::add(&x, &tensor::gather(parameters.value(table), &saved.segments)?)?;
        }
        if let Some(norm) = &self.norm {
            let (normalized, kept) = norm.forward(pass, &x, None)?;
            x = normalized;
            saved.norm = pass.keep.then_some(kept);
        }
        if let Some(dropout) = saved.dropout {
            x = tensor::drop_out(dropout, &x)?;
        }
        Ok((x, saved))
    }

    /// Emits the factors of the embedding tables.
    pub fn backward(
        &self,
        pass: &Pass,
        saved: Saved,
        mut gradient: Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        if let Some(dropout) = saved.dropout {
            gradient = tensor::drop_out(dropout, &gradient)?;
        }
        if let (Some(norm), Some(kept)) = (&self.norm, saved.norm) {
            gradient = norm.backward(pass, kept, &gradient, receiver)?;
        }
        let tables = [
            (Some(self.tokens), saved.tokens, self.scale),
            (self.positions.map(|(table, _)| table), saved.positions, 1.0),
            (self.segments, saved.segments, 1.0),
        ];
        for (table, indices, scale) in tables {
            if let Some(parameter) = table.filter(|&table| pass.parameters.is_trainable(table)) {
                let output_gradient = match scale {
                    1.0 => gradient.clone(),
                    scale => tensor::scale_columns(&gradient, &vec![scale; gradient.columns()])?,
                };
                let tokens = None;
                receiver.receive(Factor::Rows { parameter, indices, output_gradient, tokens })?;
            }
        }
        Ok(())
    }

    /// All parameters of the layer.
    pub fn parameters(&self) -> impl Iterator<Item = ParameterId> {
        let norm = self.norm.iter().flat_map(|norm| [Some(norm.weight), norm.bias]);
        [Some(self.tokens), self.positions.map(|p| p.0), self.segments]
            .into_iter()
            .chain(norm)
            .flatten()
    }
}
