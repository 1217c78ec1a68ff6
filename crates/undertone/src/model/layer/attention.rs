//! Multi-head attention with its projections.

use super::linear::{self, Linear};
use crate::model::factor::Receiver;
use crate::model::pass::Pass;
use crate::tensor::{self, AttentionShape, Host, KeyValueCache, Matrix, Output, Result};

/// Attention of every token of a sequence to every token, or to those before it.
#[derive(Clone, Debug)]
pub struct Attention {
    /// From the input to queries, keys and values.
    pub projections: Projections,
    /// From the mixed values to the output.
    pub output: Linear,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub key_heads: usize,
    /// Features of one head.
    pub width: usize,
    /// Whether a token sees only what is before it.
    pub causal: bool,
    /// Frequencies of the rotary position embedding.
    pub rotary: Option<Vec<f32>>,
    /// Rate of the dropout of the probabilities.
    pub dropout: f32,
    /// Names its mask.
    pub site: u64,
}

/// Queries, keys and values come from one weight or from three.
#[derive(Clone, Debug)]
pub enum Projections {
    /// One weight makes all three side by side (GPT-2).
    Fused(Box<Linear>),
    /// Query, key and value.
    Split(Box<[Linear; 3]>),
}

impl Projections {
    /// The one or three layers.
    pub fn layers(&self) -> &[Linear] {
        match self {
            Self::Fused(one) => std::slice::from_ref(one),
            Self::Split(three) => &three[..],
        }
    }

    /// The one or three layers, to be changed.
    pub fn layers_mut(&mut self) -> &mut [Linear] {
        match self {
            Self::Fused(one) => std::slice::from_mut(one),
            Self::Split(three) => &mut three[..],
        }
    }
}

/// What the backward pass needs.
#[derive(Clone, Debug)]
pub struct Saved {
    /// Queries, keys and values, turned if there is a rotary embedding.
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

    /// Columns that the rotary embedding turns: queries and keys.
    fn turned_columns(&self) -> usize {
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
            qkv = tensor::rotate(qkv, self.turned_columns(), frequencies, pass.positions, 1.0)?;
        }
        Ok((qkv, saved))
    }

    /// The output of each token.
    pub fn forward(&self, pass: &Pass, x: &Matrix) -> Result<(Matrix, Saved)> {
        let (qkv, projections) = self.project(pass, x)?;
        let (mixed, log_sums) = tensor::attend(&qkv, &self.shape(pass))?;
        let (y, output) = self.output.forward(pass, &mixed)?;
        Ok((y, Saved { qkv, mixed, log_sums, projections, output }))
    }

    /// The weights with which the first or the last token of each sequence looks at its sequence:
    /// one row for each head.
    pub fn weights_of_one(&self, pass: &Pass, x: &Matrix, last_token: bool) -> Result<Vec<Host>> {
        let qkv = self.project(pass, x)?.0.to_host()?;
        let scale = (self.width as f32).sqrt().recip();
        let looks = |window: &[usize]| {
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
        Ok(pass.starts.windows(2).map(looks).collect())
    }

    /// The output of new tokens, which see those in the cache and join them.
    pub fn extend(&self, pass: &Pass, x: &Matrix, cache: &mut KeyValueCache) -> Result<Matrix> {
        let (qkv, _) = self.project(pass, x)?;
        let mixed = cache.attend(&qkv, &self.shape(pass))?;
        Ok(self.output.forward(pass, &mixed)?.0)
    }

    /// Hands out the factors and adds the gradient of the input.
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
            gradient =
                tensor::rotate(gradient, self.turned_columns(), frequencies, pass.positions, -1.0)?;
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
