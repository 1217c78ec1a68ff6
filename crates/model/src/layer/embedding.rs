//! Token, position and segment embeddings, summed and normalized.
//!
//! A [soft prompt](SoftPrompt) is a second table: token ids from the vocabulary's size on are its
//! rows. The gradient of row j is that of the output at virtual token j of each sequence, so a
//! unit's gradient is a sum over its own sequences, and per-example norms are exact.

use super::norm::{self, Norm};
use crate::factor::{Factor, Receiver};
use crate::parameters::ParameterId;
use crate::pass::Pass;
use std::sync::Arc;
use undertone_tensor::{self as tensor, Dropout, Matrix, Result};

/// Position of padding in models that have a row for it before that of the first position
/// (RoBERTa).
pub const PADDING: u32 = u32::MAX;

/// A soft prompt: embeddings of virtual tokens, which come before the tokens of each sequence.
#[derive(Clone, Copy, Debug)]
pub struct SoftPrompt {
    /// The table, `[virtual tokens, hidden]`.
    pub table: ParameterId,
    /// Number of virtual tokens.
    pub tokens: usize,
    /// The id of the first virtual token: the size of the vocabulary.
    pub first: u32,
}

impl SoftPrompt {
    /// The ids of the virtual tokens.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.first..self.first + self.tokens as u32
    }
}

/// Embedding layer.
#[derive(Clone, Debug)]
pub struct Embeddings {
    /// Virtual tokens before every sequence.
    pub prompt: Option<SoftPrompt>,
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
    /// The sum of the embeddings, before normalization and dropout, and its indices.
    fn indexed(&self, pass: &Pass, tokens: &[u32], segments: &[u32]) -> Result<(Matrix, Saved)> {
        let parameters = pass.parameters;
        let mut x = self.embed(pass, tokens)?;
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
        Ok((x, saved))
    }

    /// The sum of the embeddings, before normalization, `[tokens, hidden]`.
    pub fn sum(&self, pass: &Pass, tokens: &[u32], segments: &[u32]) -> Result<Matrix> {
        Ok(self.indexed(pass, tokens, segments)?.0)
    }

    /// Embeds the tokens, `[tokens, hidden]`. An empty `segments` means segment 0 for all tokens.
    pub fn forward(
        &self,
        pass: &Pass,
        tokens: &[u32],
        segments: &[u32],
    ) -> Result<(Matrix, Saved)> {
        let (mut x, mut saved) = self.indexed(pass, tokens, segments)?;
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
        self.backward_prompt(pass, &tables[0].1, &gradient, receiver)?;
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

    /// Rows of the virtual tokens among `tokens`, and their rows in the prompt's table.
    fn virtual_rows(prompt: &SoftPrompt, tokens: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let own = tokens.iter().zip(0..).filter(|(token, _)| **token >= prompt.first);
        own.map(|(token, row)| (row, token - prompt.first)).unzip()
    }

    /// The rows of the token table and, for virtual tokens, of the prompt's.
    fn embed(&self, pass: &Pass, tokens: &[u32]) -> Result<Matrix> {
        let table = pass.parameters.value(self.tokens);
        let Some(prompt) = &self.prompt else { return tensor::gather(table, tokens) };
        let (rows, indices) = Self::virtual_rows(prompt, tokens);
        let real = |token: &u32| *token < prompt.first;
        let known: Vec<u32> =
            tokens.iter().map(|token| if real(token) { *token } else { 0 }).collect();
        let kept: Vec<f32> =
            tokens.iter().map(|token| if real(token) { 1.0 } else { 0.0 }).collect();
        let of_tokens = tensor::scale_rows(&tensor::gather(table, &known)?, &kept)?;
        if rows.is_empty() {
            return Ok(of_tokens);
        }
        let of_prompt = tensor::gather(pass.parameters.value(prompt.table), &indices)?;
        tensor::add(&of_tokens, &tensor::scatter(&of_prompt, &rows, tokens.len())?)
    }

    /// Emits the factor of the prompt's table.
    fn backward_prompt(
        &self,
        pass: &Pass,
        tokens: &[u32],
        gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        let Some(prompt) = self.prompt.filter(|p| pass.parameters.is_trainable(p.table)) else {
            return Ok(());
        };
        let (rows, indices) = Self::virtual_rows(&prompt, tokens);
        if rows.is_empty() {
            return Ok(());
        }
        receiver.receive(Factor::Rows {
            parameter: prompt.table,
            indices,
            output_gradient: tensor::gather(gradient, &rows)?,
            tokens: Some(Arc::new(rows)),
        })
    }

    /// All parameters of the layer.
    pub fn parameters(&self) -> impl Iterator<Item = ParameterId> {
        let norm = self.norm.iter().flat_map(|norm| [Some(norm.weight), norm.bias]);
        let prompt = self.prompt.map(|prompt| prompt.table);
        [Some(self.tokens), self.positions.map(|p| p.0), self.segments, prompt]
            .into_iter()
            .chain(norm)
            .flatten()
    }
}
