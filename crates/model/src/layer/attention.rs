//! Multi-head self-attention and its projections.

use super::head_norms::{self, HeadNorms};
use super::linear::{self, Linear};
use super::norm::Norm;
use super::relative_positions::{self, RelativePositions};
use super::used_twice::Merging;
use crate::factor::Receiver;
use crate::pass::Pass;
use undertone_tensor::{
    self as tensor, AttentionShape, Error, Host, KeyValueCache, Matrix, Output, Result, Scores,
};

/// Multi-head self-attention, bidirectional or causal; grouped-query attention if there are fewer
/// key heads than query heads.
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
    /// Normalization of each head's queries and keys.
    pub head_norms: Option<HeadNorms>,
    /// Frequencies of the rotary position embedding (RoPE).
    pub rotary: Option<Vec<f32>>,
    /// Relative-position terms of the scores.
    pub relative: Option<RelativePositions>,
    /// Scaling and bounding of the scores, and the attention window.
    pub scores: Scores,
    /// Dropout probability of the attention weights.
    pub dropout: f32,
    /// Index that distinguishes this layer's dropout mask.
    pub site: u64,
}

/// Query, key and value projections, as one fused layer or three.
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
            Self::Fused(layer) => std::slice::from_ref(layer),
            Self::Split(three) => &three[..],
        }
    }

    pub fn layers_mut(&mut self) -> &mut [Linear] {
        match self {
            Self::Fused(layer) => std::slice::from_mut(layer),
            Self::Split(three) => &mut three[..],
        }
    }
}

/// Activations saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    /// `[q | k | v]`, after the rotary embedding, if any.
    qkv: Matrix,
    mixed: Matrix,
    log_sums: Matrix,
    projections: Vec<linear::Saved>,
    head_norms: Option<head_norms::Saved>,
    relative: Option<relative_positions::Saved>,
    output: linear::Saved,
}

/// Output of the projections, `[q | k | v]`, and what their backward pass needs.
struct Projected {
    qkv: Matrix,
    projections: Vec<linear::Saved>,
    head_norms: Option<head_norms::Saved>,
}

impl Attention {
    pub(crate) fn shape<'a>(&self, pass: &Pass<'a>) -> AttentionShape<'a> {
        AttentionShape {
            starts: pass.starts,
            heads: self.heads,
            key_heads: self.key_heads,
            width: self.width,
            causal: self.causal,
            dropout: pass.dropout(self.dropout, self.site),
            scores: self.scores,
        }
    }

    /// How padded sequences are attended to. Padding rows are rearranged there, so a window could
    /// not determine distances between rows.
    fn padded(&self, pass: &Pass) -> Result<Option<Padded>> {
        let padded = Padded::of(pass);
        if padded.is_some() && self.relative.is_some() {
            let problem = "attention with relative positions cannot be computed over padded \
                           sequences; use lengths = \"hidden\" or \"public\"";
            return Err(Error::Unsupported(problem.into()));
        }
        if padded.is_some() && self.shape(pass).narrow_window().is_some() {
            let problem = "attention with a window cannot be computed over padded sequences that \
                           are longer than it; lower max_tokens";
            return Err(Error::Unsupported(problem.into()));
        }
        Ok(padded)
    }

    /// Number of columns that the rotary embedding rotates: queries and keys.
    fn rotated_columns(&self) -> usize {
        (self.heads + self.key_heads) * self.width
    }

    /// The head normalization for projection `i` (queries, keys or values).
    pub(crate) fn norm_of_projection(&self, i: usize) -> Option<&Norm> {
        let norms = self.head_norms.as_ref()?;
        [&norms.queries, &norms.keys].get(i).copied()
    }

    fn project(&self, pass: &Pass, x: &Matrix) -> Result<Projected> {
        let columns = (self.heads + 2 * self.key_heads) * self.width;
        let mut out = Output::new(&x.device(), x.rows(), columns);
        let (mut saved, mut normed) = (Vec::new(), Vec::new());
        let mut first = 0;
        for (i, layer) in self.projections.layers().iter().enumerate() {
            let block = first..first + layer.outputs;
            match self.norm_of_projection(i) {
                None => saved.push(layer.forward_into(pass, x, &mut out, block)?),
                Some(norm) => {
                    let (y, kept) = layer.forward(pass, x)?;
                    let (y, kept_of_norm) = head_norms::forward(norm, pass, &y, self.width)?;
                    out.add_block(block, &y)?;
                    saved.push(kept);
                    normed.push(kept_of_norm);
                }
            }
            first += layer.outputs;
        }
        let mut qkv = out.finish()?;
        if let Some(frequencies) = &self.rotary {
            qkv = tensor::rotate(qkv, self.rotated_columns(), frequencies, pass.positions, 1.0)?;
        }
        Ok(Projected { qkv, projections: saved, head_norms: normed.try_into().ok() })
    }

    /// The output for each token, `[tokens, hidden]`.
    pub fn forward(&self, pass: &Pass, x: &Matrix) -> Result<(Matrix, Saved)> {
        let Projected { qkv, projections, head_norms } = self.project(pass, x)?;
        let Some(padded) = self.padded(pass)? else {
            let shape = self.shape(pass);
            let relative = self.relative.as_ref();
            let relative = relative.map(|r| r.forward(pass, self, &qkv)).transpose()?;
            let (mixed, log_sums) = match &relative {
                None => tensor::attend(&qkv, &shape)?,
                Some(kept) => tensor::attend_relative(&qkv, &kept.terms(), &shape)?,
            };
            let (y, output) = self.output.forward(pass, &mixed)?;
            let saved = Saved { qkv, mixed, log_sums, projections, head_norms, relative, output };
            return Ok((y, saved));
        };
        let qkv = padded.spread(self, &qkv)?;
        let shape = AttentionShape { starts: &padded.starts, ..self.shape(pass) };
        let (mixed, log_sums) = tensor::attend(&qkv, &shape)?;
        let of_tokens = tensor::gather(&mixed, &padded.at)?;
        let (y, output) = self.output.forward(pass, &of_tokens)?;
        let relative = None;
        let saved = Saved { qkv, mixed, log_sums, projections, head_norms, relative, output };
        Ok((y, saved))
    }

    /// Attention weights of the first or last token of each sequence, `[heads, length]` per
    /// sequence.
    pub fn token_weights(&self, pass: &Pass, x: &Matrix, last_token: bool) -> Result<Vec<Host>> {
        let projected = self.project(pass, x)?.qkv;
        let qkv = projected.to_host()?;
        let shape = self.shape(pass);
        let relative = self.relative.as_ref();
        let relative = relative.map(|layer| layer.forward(pass, self, &projected)).transpose()?;
        let terms = match &relative {
            None => None,
            Some(kept) => {
                let terms = kept.terms();
                let of_queries = terms.of_queries.to_host()?;
                let of_keys = terms.of_keys.map(Matrix::to_host).transpose()?;
                Some((terms, of_queries, of_keys))
            }
        };
        // The relative-position term of the score of two tokens in the sequence at `start`.
        let bias = |head: usize, start: usize, query: usize, key: usize| match &terms {
            None => 0.0,
            Some((terms, of_queries, of_keys)) => {
                let column = terms.column(head, query, key);
                let of_key = of_keys.as_ref().map_or(0.0, |keys| keys.row(start + key)[column]);
                of_queries.row(start + query)[column] + of_key
            }
        };
        let weights = |window: &[usize]| {
            let from = if last_token { window[1] - 1 } else { window[0] };
            let length = window[1] - window[0];
            let sees = shape.seen(from - window[0], length);
            let mut weights = vec![0.0; self.heads * length];
            for (head, out) in weights.chunks_exact_mut(length).enumerate() {
                let shared = head / (self.heads / self.key_heads.max(1)).max(1);
                let query = &qkv.row(from)[head * self.width..(head + 1) * self.width];
                let first = (self.heads + shared) * self.width;
                let seen = &mut out[sees.clone()];
                for (out, row) in seen.iter_mut().zip(sees.clone()) {
                    let key = &qkv.row(window[0] + row)[first..first + self.width];
                    let score = query.iter().zip(key).map(|(q, k)| q * k).sum::<f32>();
                    let bias = bias(head, window[0], from - window[0], row);
                    *out = self.scores.capped(shape.scale() * score + bias);
                }
                let largest = seen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                seen.iter_mut().for_each(|w| *w = (*w - largest).exp());
                let total: f32 = seen.iter().sum();
                seen.iter_mut().for_each(|w| *w /= total);
            }
            Host::from_vec(self.heads, length, weights)
        };
        Ok(pass.starts.windows(2).map(weights).collect())
    }

    /// The output for new tokens, which attend to the key-value cache and are appended to it.
    pub fn extend(&self, pass: &Pass, x: &Matrix, cache: &mut KeyValueCache) -> Result<Matrix> {
        let qkv = self.project(pass, x)?.qkv;
        let mixed = cache.attend(&qkv, &self.shape(pass))?;
        Ok(self.output.forward(pass, &mixed)?.0)
    }

    /// Emits the factors and adds the gradient of the input to `input_gradient`.
    pub fn backward(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: &Matrix,
        mut input_gradient: Option<&mut Output>,
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        let Saved { qkv, mixed, log_sums, projections, head_norms, relative, output } = saved;
        let mixed_gradient = self.output.backward_alone(pass, output, output_gradient, receiver)?;
        let mut merging = Merging { starts: pass.starts, held: Vec::new(), receiver };
        let receiver = &mut merging;
        let mut of_terms = None;
        let mut gradient = match self.padded(pass)? {
            None => {
                let shape = self.shape(pass);
                match (&self.relative, &relative) {
                    (Some(layer), Some(kept)) => {
                        let terms = kept.terms();
                        let gradients = tensor::attend_relative_backward(
                            &qkv,
                            &terms,
                            &mixed,
                            &log_sums,
                            &mixed_gradient,
                            &shape,
                        )?;
                        let saved = (&qkv, kept);
                        of_terms = layer.backward(pass, self, saved, &gradients, receiver)?;
                        gradients.qkv
                    }
                    _ => tensor::attend_backward(&qkv, &mixed, &log_sums, &mixed_gradient, &shape)?,
                }
            }
            Some(padded) => {
                let spread = tensor::scatter(&mixed_gradient, &padded.at, mixed.rows())?;
                let shape = AttentionShape { starts: &padded.starts, ..self.shape(pass) };
                let gradient = tensor::attend_backward(&qkv, &mixed, &log_sums, &spread, &shape)?;
                padded.gather(self, &gradient, mixed_gradient.rows())?
            }
        };
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
        let mut head_norms = head_norms.into_iter().flatten();
        for (i, (layer, saved)) in self.projections.layers().iter().zip(projections).enumerate() {
            let mut part = gradient.column_range(first..first + layer.outputs)?;
            if let Some(more) = of_terms.as_ref().and_then(|both| both.get(i)) {
                part = tensor::add(&part, more)?;
            }
            if let (Some(norm), Some(kept)) = (self.norm_of_projection(i), head_norms.next()) {
                part = head_norms::backward(norm, pass, kept, &part, self.width, receiver)?;
            }
            layer.backward(pass, saved, &part, input_gradient.as_deref_mut(), receiver)?;
            first += layer.outputs;
        }
        merging.finish()
    }
}

/// Attention over padded sequences in which no token attends to padding, computed by unmasked
/// attention. A sequence of n tokens and its padding become several sequences of n rows, all with
/// the keys and values of the n tokens. The first has the tokens' queries, and each of the others
/// has the queries of n padding rows.
struct Padded {
    /// Start of each of these sequences, followed by the end of the last one.
    starts: Vec<usize>,
    /// The original row that supplies each row's query.
    queries: Vec<u32>,
    /// The original row that supplies each row's key and value.
    keys: Vec<u32>,
    /// For each original row, the row that has its query.
    at: Vec<u32>,
}

impl Padded {
    /// Returns `None` if there is no padding.
    fn of(pass: &Pass) -> Option<Self> {
        let visible = pass.visible?;
        let mut padded =
            Self { starts: vec![0], queries: Vec::new(), keys: Vec::new(), at: Vec::new() };
        for (window, &tokens) in pass.starts.windows(2).zip(visible) {
            let rows: Vec<u32> = (window[0] as u32..window[1] as u32).collect();
            for piece in rows.chunks(tokens.max(1)) {
                let first = padded.queries.len() as u32;
                padded.at.extend(first..first + piece.len() as u32);
                padded.queries.extend(piece);
                // The last piece may be short; results for the extra queries are not used.
                padded.queries.resize(first as usize + tokens, rows[0]);
                padded.keys.extend(&rows[..tokens]);
                padded.starts.push(padded.queries.len());
            }
        }
        Some(padded)
    }

    /// Masks that are 1 for the query columns and 0 for the key and value columns, and the reverse.
    fn columns(attention: &Attention) -> (Vec<f32>, Vec<f32>) {
        let queries = attention.heads * attention.width;
        let all = queries + 2 * attention.key_heads * attention.width;
        let of_queries: Vec<f32> = (0..all).map(|j| if j < queries { 1.0 } else { 0.0 }).collect();
        let of_keys = of_queries.iter().map(|x| 1.0 - x).collect();
        (of_queries, of_keys)
    }

    /// Maps `[q | k | v]` of the padded tokens to that of the sequences.
    fn spread(&self, attention: &Attention, qkv: &Matrix) -> Result<Matrix> {
        let (of_queries, of_keys) = Self::columns(attention);
        let queries = tensor::scale_columns(&tensor::gather(qkv, &self.queries)?, &of_queries)?;
        let keys = tensor::scale_columns(&tensor::gather(qkv, &self.keys)?, &of_keys)?;
        tensor::add(&queries, &keys)
    }

    /// Maps the gradient of the sequences' `[q | k | v]` to that of the padded tokens.
    fn gather(&self, attention: &Attention, gradient: &Matrix, rows: usize) -> Result<Matrix> {
        let (of_queries, of_keys) = Self::columns(attention);
        let queries = tensor::scale_columns(&tensor::gather(gradient, &self.at)?, &of_queries)?;
        let keys = tensor::scatter(gradient, &self.keys, rows)?;
        tensor::add(&queries, &tensor::scale_columns(&keys, &of_keys)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskHead;
    use crate::architecture::{Architecture, Dimensions};

    /// Compared with the definition: a softmax over the non-padding keys, for every query.
    #[test]
    fn no_token_attends_to_padding() {
        let dimensions = Dimensions {
            layers: 1,
            hidden: 16,
            heads: 4,
            inner: 8,
            vocabulary: 20,
            positions: 20,
            key_heads: None,
        };
        let labels = ["a".to_owned(), "b".to_owned()];
        let model = Architecture::Bert
            .random(dimensions, TaskHead::SequenceClassification, &labels, 5)
            .unwrap();
        let attention = &model.network.blocks[0].attention;
        let (starts, visible) = ([0, 7, 14, 21], [3, 7, 1]);
        let mut pass = Pass::plain(&model.parameters);
        pass.starts = &starts;
        pass.visible = Some(&visible);
        let number = |i: usize| ((i * 2_654_435_761) % 1_000) as f32 / 500.0 - 1.0;
        let qkv = Matrix::from_vec(21, 48, (0..21 * 48).map(number).collect());
        let padded = Padded::of(&pass).unwrap();
        let spread = padded.spread(attention, &qkv).unwrap();
        let shape = AttentionShape { starts: &padded.starts, ..attention.shape(&pass) };
        let (mixed, _) = tensor::attend(&spread, &shape).unwrap();
        let gathered = tensor::gather(&mixed, &padded.at).unwrap().to_host().unwrap();
        let qkv = qkv.to_host().unwrap();
        for (window, tokens) in starts.windows(2).zip(visible) {
            for (row, head) in (window[0]..window[1]).flat_map(|r| (0..4).map(move |h| (r, h))) {
                let part = |row: usize, of: usize| &qkv.row(row)[16 * of + 4 * head..][..4];
                let score = |key: usize| {
                    let pairs = part(row, 0).iter().zip(part(key, 1));
                    (pairs.map(|(q, k)| f64::from(q * k)).sum::<f64>() / 2.0).exp()
                };
                let seen = || window[0]..window[0] + tokens;
                let total: f64 = seen().map(score).sum();
                for j in 0..4 {
                    let wanted: f64 =
                        seen().map(|key| score(key) / total * f64::from(part(key, 2)[j])).sum();
                    let got = f64::from(gathered.row(row)[4 * head + j]);
                    assert!((got - wanted).abs() < 1e-5, "{row}, {head}: {got}, not {wanted}");
                }
            }
        }
    }
}
