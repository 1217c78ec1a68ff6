//! Attention: projections, and two matrix products with a softmax in between.

use super::layers::{LinearTrace, add, add_columns, columns};
use super::rules::{divided, features, map, product};
use super::{Collected, Explainer};
use crate::layer::attention::Attention;
use crate::layer::head_norms;
use crate::layer::position_bias::PositionBias;
use crate::layer::relative_positions::RelativePositions;
use crate::{Pass, Result};
use undertone_tensor::{self as tensor, Host, Matrix};

pub(super) struct AttentionTrace {
    projections: Vec<LinearTrace>,
    /// Queries, keys and values side by side, after normalization and rotary embedding, if any.
    qkv: Host,
    /// Scale of the products of queries and keys.
    scale: f32,
    /// One `[tokens, tokens]` matrix per head.
    probabilities: Vec<Host>,
    pub output: LinearTrace,
}

/// First columns of a head's query, key and value.
struct Offsets {
    query: usize,
    key: usize,
    value: usize,
}

impl Explainer {
    fn offsets(attention: &Attention, head: usize) -> Offsets {
        let (width, heads, key_heads) = (attention.width, attention.heads, attention.key_heads);
        let shared = head / (heads / key_heads.max(1)).max(1);
        Offsets {
            query: head * width,
            key: (heads + shared) * width,
            value: (heads + key_heads + shared) * width,
        }
    }

    pub(super) fn trace_attention(
        &self,
        pass: &Pass,
        attention: &Attention,
        x: &Host,
    ) -> Result<AttentionTrace> {
        let width = attention.width;
        let total = (attention.heads + 2 * attention.key_heads) * width;
        let mut qkv = Host::from_vec(x.rows(), total, vec![0.0; x.rows() * total]);
        let (mut projections, mut first) = (Vec::new(), 0);
        for (i, layer) in attention.projections.layers().iter().enumerate() {
            let trace = self.trace_linear(layer, x)?;
            // Like other normalizations, head normalization passes relevance unchanged.
            match attention.norm_of_projection(i) {
                Some(norm) => {
                    let output = Matrix::Host(trace.output.clone());
                    let normed = head_norms::forward(norm, pass, &output, width)?.0;
                    add_columns(&mut qkv, first, &normed.to_host()?);
                }
                None => add_columns(&mut qkv, first, &trace.output),
            }
            first += layer.outputs;
            projections.push(trace);
        }
        let bias = match &attention.relative {
            None => None,
            Some(RelativePositions::Bias(layer)) => Some((layer, self.value(layer.table)?)),
            Some(RelativePositions::Disentangled(_)) => {
                return Err(crate::Error::Request(
                    "relevance is not supported for relative position embeddings, as in DeBERTa; \
                     use another method"
                        .into(),
                ));
            }
        };
        if let Some(frequencies) = &attention.rotary {
            let turned = (attention.heads + attention.key_heads) * width;
            qkv = tensor::rotate(Matrix::Host(qkv), turned, frequencies, pass.positions, 1.0)?
                .to_host()?;
        }
        let tokens = x.rows();
        let mut mixed = Host::from_vec(
            tokens,
            attention.heads * width,
            vec![0.0; tokens * attention.heads * width],
        );
        let mut probabilities = Vec::new();
        for head in 0..attention.heads {
            let at = Self::offsets(attention, head);
            let (q, k) =
                (columns(&qkv, at.query..at.query + width), columns(&qkv, at.key..at.key + width));
            let mut scores = product(&q, false, &k, true)?;
            let shape = attention.shape(pass);
            for (t, row) in scores.values_mut().chunks_exact_mut(tokens).enumerate() {
                let seen = shape.seen(t, tokens);
                for (s, score) in row.iter_mut().enumerate() {
                    let bias = bias
                        .as_ref()
                        .map_or(0.0, |(layer, table)| table.row(layer.bucket(t, s) as usize)[head]);
                    *score = match seen.contains(&s) {
                        true => attention.scores.capped(*score * shape.scale() + bias),
                        false => f32::NEG_INFINITY,
                    };
                }
                let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                row.iter_mut().for_each(|score| *score = (*score - most).exp());
                let sum: f32 = row.iter().sum();
                row.iter_mut().for_each(|p| *p /= sum);
            }
            let v = columns(&qkv, at.value..at.value + width);
            add_columns(&mut mixed, head * width, &product(&scores, false, &v, false)?);
            probabilities.push(scores);
        }
        let output = self.trace_linear(&attention.output, &mixed)?;
        let scale = attention.shape(pass).scale();
        Ok(AttentionTrace { projections, qkv, scale, probabilities, output })
    }

    pub(super) fn through_attention(
        &self,
        attention: &Attention,
        trace: &AttentionTrace,
        relevance: &Host,
        collected: &mut Collected,
    ) -> Result<Host> {
        let width = attention.width;
        let of_mixed =
            self.through_linear(&attention.output, &trace.output, relevance, collected)?;
        let (rows, total) = (trace.qkv.rows(), trace.qkv.columns());
        let mut of_qkv = Host::from_vec(rows, total, vec![0.0; rows * total]);
        for (head, probabilities) in trace.probabilities.iter().enumerate() {
            let at = Self::offsets(attention, head);
            let part = |first: usize| columns(&trace.qkv, first..first + width);
            let of_head = columns(&of_mixed, head * width..(head + 1) * width);
            let (of_scores, of_values) = features(probabilities, &part(at.value), false, &of_head)?;
            // Softmax and soft-capping pass relevance unchanged; the scale of the scores cancels.
            let of_scores = match &attention.relative {
                Some(RelativePositions::Bias(layer)) => {
                    let scores = product(&part(at.query), false, &part(at.key), true)?;
                    let scores = map(&scores, |score| trace.scale * score);
                    self.through_position_bias(layer, head, &scores, of_scores, collected)?
                }
                _ => of_scores,
            };
            let (of_queries, of_keys) = features(&part(at.query), &part(at.key), true, &of_scores)?;
            add_columns(&mut of_qkv, at.query, &of_queries);
            add_columns(&mut of_qkv, at.key, &of_keys);
            add_columns(&mut of_qkv, at.value, &of_values);
        }
        // A rotation mixes the two coordinates of a pair; each keeps its relevance, which conserves
        // the sum of the pair.
        let (mut input, mut first): (Option<Host>, usize) = (None, 0);
        for (layer, projection) in attention.projections.layers().iter().zip(&trace.projections) {
            let part = columns(&of_qkv, first..first + layer.outputs);
            let of_input = self.through_linear(layer, projection, &part, collected)?;
            input = Some(match input {
                Some(sum) => add(&sum, &of_input),
                None => of_input,
            });
            first += layer.outputs;
        }
        Ok(input.expect("attention has projections"))
    }

    /// Relative-position terms of the scores act as a bias: their relevance is read off by equation
    /// 16, and subtracted from the propagated relevance if biases count as contributions. `scores`
    /// excludes the bias.
    fn through_position_bias(
        &self,
        layer: &PositionBias,
        head: usize,
        scores: &Host,
        mut relevance: Host,
        collected: &mut Collected,
    ) -> Result<Host> {
        let table = self.value(layer.table)?;
        let mut sums = vec![0.0; table.rows() * table.columns()];
        let tokens = relevance.columns();
        for (t, row) in relevance.values_mut().chunks_exact_mut(tokens).enumerate() {
            for (s, r) in row.iter_mut().enumerate() {
                let bucket = layer.bucket(t, s) as usize;
                let (score, bias) = (scores.row(t)[s], table.row(bucket)[head]);
                let ratio = divided(*r, score + bias);
                sums[bucket * table.columns() + head] += bias * ratio;
                if self.rule.bias_in_z {
                    *r = score * ratio;
                }
            }
        }
        if self.is_trainable(layer.table) {
            collected.add(layer.table, &sums);
        }
        Ok(relevance)
    }
}
