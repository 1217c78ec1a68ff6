//! Multi-head self-attention with its projections.

use super::linear::{self, Linear};
use crate::model::factor::Receiver;
use crate::model::pass::Pass;
use crate::tensor::{self, AttentionShape, Host, KeyValueCache, Matrix, Output, Result};

/// Multi-head self-attention, bidirectional or causal, with grouped-query attention if there are
/// fewer heads of keys than of queries.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Query, key and value projections.
    pub projections: Projections,
    /// Output projection.
    pub output: Linear,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads.
    pub key_heads: usize,
    /// Head width, in features.
    pub width: usize,
    /// Whether a token attends only to itself and earlier tokens.
    pub causal: bool,
    /// Frequencies of the rotary position embedding (RoPE).
    pub rotary: Option<Vec<f32>>,
    /// Dropout probability of the attention weights.
    pub dropout: f32,
    /// Index that distinguishes this layer's dropout mask.
    pub site: u64,
}

/// Query, key and value projections as one layer or three.
#[derive(Clone, Debug)]
pub enum Projections {
    /// One fused layer, with outputs `[q | k | v]` (GPT-2).
    Fused(Box<Linear>),
    /// Separate query, key and value layers.
    Split(Box<[Linear; 3]>),
}

impl Projections {
    pub fn layers(&self) -> &[Linear] {
        match self {
            Self::Fused(one) => std::slice::from_ref(one),
            Self::Split(three) => &three[..],
        }
    }

    pub fn layers_mut(&mut self) -> &mut [Linear] {
        match self {
            Self::Fused(one) => std::slice::from_mut(one),
            Self::Split(three) => &mut three[..],
        }
    }
}

/// Activations saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    /// `[q | k | v]`, after the rotary embedding if there is one.
    qkv: Matrix,
    mixed: Matrix,
    log_sums: Matrix,
    projections: Vec<linear::Saved>,
    output: linear::Saved,
}

impl Attention {
    fn shape<'a>(&self, pass: &Pass<'a>) -> AttentionShape<'a> {
        AttentionShape {
            starts: pass.starts,
            heads: self.heads,
            key_heads: self.key_heads,
            width: self.width,
            causal: self.causal,
            dropout: pass.dropout(self.dropout, self.site),
        }
    }

    /// Columns that the rotary embedding rotates: queries and keys.
    fn rotated_columns(&self) -> usize {
        (self.heads + self.key_heads) * self.width
    }

    fn project(&self, pass: &Pass, x: &Matrix) -> Result<(Matrix, Vec<linear::Saved>)> {
        let columns = (self.heads + 2 * self.key_heads) * self.width;
        let mut out = Output::new(&x.device(), x.rows(), columns);
        let mut saved = Vec::new();
        let mut first = 0;
        for layer in self.projections.layers() {
            saved.push(layer.forward_into(pass, x, &mut out, first..first + layer.outputs)?);
            first += layer.outputs;
        }
        let mut qkv = out.finish()?;
        if let Some(frequencies) = &self.rotary {
            qkv = tensor::rotate(qkv, self.rotated_columns(), frequencies, pass.positions, 1.0)?;
        }
        Ok((qkv, saved))
    }

    /// The output of each token, `[tokens, hidden]`.
    pub fn forward(&self, pass: &Pass, x: &Matrix) -> Result<(Matrix, Saved)> {
        let (qkv, projections) = self.project(pass, x)?;
        let (mixed, log_sums) = tensor::attend(&qkv, &self.shape(pass))?;
        let (y, output) = self.output.forward(pass, &mixed)?;
        Ok((y, Saved { qkv, mixed, log_sums, projections, output }))
    }

    /// Attention weights of the first or the last token of each sequence, `[heads, length]` per
    /// sequence.
    pub fn token_weights(&self, pass: &Pass, x: &Matrix, last_token: bool) -> Result<Vec<Host>> {
        let qkv = self.project(pass, x)?.0.to_host()?;
        let scale = (self.width as f32).sqrt().recip();
        let weights = |window: &[usize]| {
            let from = if last_token { window[1] - 1 } else { window[0] };
            let sees = if self.causal { window[0]..from + 1 } else { window[0]..window[1] };
            let length = window[1] - window[0];
            let mut weights = vec![0.0; self.heads * length];
            for (head, out) in weights.chunks_exact_mut(length).enumerate() {
                let shared = head / (self.heads / self.key_heads.max(1)).max(1);
                let query = &qkv.row(from)[head * self.width..(head + 1) * self.width];
                let first = (self.heads + shared) * self.width;
                for (out, row) in out.iter_mut().zip(sees.clone()) {
                    let key = &qkv.row(row)[first..first + self.width];
                    *out = scale * query.iter().zip(key).map(|(q, k)| q * k).sum::<f32>();
                }
                let seen = &mut out[..sees.len()];
                let largest = seen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                seen.iter_mut().for_each(|w| *w = (*w - largest).exp());
                let total: f32 = seen.iter().sum();
                seen.iter_mut().for_each(|w| *w /= total);
            }
            Host::from_vec(self.heads, length, weights)
        };
        Ok(pass.starts.windows(2).map(weights).collect())
    }

    /// The output of new tokens, which attend to the key-value cache and are appended to it.
    pub fn extend(&self, pass: &Pass, x: &Matrix, cache: &mut KeyValueCache) -> Result<Matrix> {
        let (qkv, _) = self.project(pass, x)?;
        let mixed = cache.attend(&qkv, &self.shape(pass))?;
        Ok(self.output.forward(pass, &mixed)?.0)
    }

    /// Passes on the factors and adds the gradient of the input to `input_gradient`.
    pub fn backward(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: &Matrix,
        mut input_gradient: Option<&mut Output>,
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        let Saved { qkv, mixed, log_sums, projections, output } = saved;
        let mixed_gradient = self.output.backward_alone(pass, output, output_gradient, receiver)?;
        let shape = self.shape(pass);
        let mut gradient =
            tensor::attend_backward(&qkv, &mixed, &log_sums, &mixed_gradient, &shape)?;
        drop((qkv, mixed, log_sums, mixed_gradient));
        if let Some(frequencies) = &self.rotary {
            gradient = tensor::rotate(
                gradient,
                self.rotated_columns(),
                frequencies,
                pass.positions,
                -1.0,
            )?;
        }
        let mut first = 0;
        for (layer, saved) in self.projections.layers().iter().zip(projections) {
            let part = gradient.column_range(first..first + layer.outputs)?;
            layer.backward(pass, saved, &part, input_gradient.as_deref_mut(), receiver)?;
            first += layer.outputs;
        }
        Ok(())
    }
}
