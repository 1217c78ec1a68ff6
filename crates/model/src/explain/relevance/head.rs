//! Task heads: the tokens that they read, a dense layer, and the output layer.

use super::layers::{LinearTrace, activate};
use super::rules::{divided, map, zip};
use super::{Collected, Explainer};
use crate::layer::head::Pick;
use crate::{Pass, Result};
use undertone_tensor::Host;

/// The hidden states that a head reads.
enum HiddenStates {
    /// The states of these tokens.
    Of(Vec<u32>),
    /// The states, and their mean.
    Mean(Host, Host),
}

pub(super) struct HeadTrace {
    read: HiddenStates,
    /// Number of tokens.
    tokens: usize,
    dense: Option<LinearTrace>,
    normed: Option<Host>,
    out: LinearTrace,
    /// The output, soft-capped if the head does so, which passes relevance unchanged.
    logits: Host,
}

impl HeadTrace {
    pub fn logits(&self) -> Host {
        self.logits.clone()
    }
}

/// Mean of the rows, as a single row.
fn mean(matrix: &Host) -> Host {
    let rows = matrix.rows();
    let of = |j: usize| (0..rows).map(|i| matrix.row(i)[j]).sum::<f32>() / rows as f32;
    Host::from_vec(1, matrix.columns(), (0..matrix.columns()).map(of).collect())
}

/// A mean is a sum: each term receives its share of each element, as in equation 8.
fn of_mean(terms: &Host, mean: &Host, relevance: &Host) -> Host {
    let ratio = zip(relevance, mean, divided);
    let count = terms.rows() as f32;
    let of = |i: usize| terms.row(i).iter().zip(ratio.row(0)).map(move |(x, r)| x / count * r);
    Host::from_vec(terms.rows(), terms.columns(), (0..terms.rows()).flat_map(of).collect())
}

impl Explainer {
    pub(super) fn trace_head(
        &self,
        pass: &Pass,
        hidden: &Host,
        wanted: &[u32],
    ) -> Result<HeadTrace> {
        let head = &self.model.network.head;
        let last = hidden.rows().saturating_sub(1) as u32;
        let read = match head.pick {
            Pick::First => HiddenStates::Of(vec![0]),
            Pick::Last => HiddenStates::Of(vec![last]),
            Pick::Tokens => HiddenStates::Of(wanted.to_vec()),
            Pick::Mean => HiddenStates::Mean(hidden.clone(), mean(hidden)),
        };
        let mut x = match &read {
            HiddenStates::Of(rows) => {
                let picked = rows.iter().flat_map(|&row| hidden.row(row as usize).to_vec());
                Host::from_vec(rows.len(), hidden.columns(), picked.collect())
            }
            HiddenStates::Mean(_, mean) => mean.clone(),
        };
        let mut dense = None;
        if let Some((layer, activation)) = &head.dense {
            let trace = self.trace_linear(layer, &x)?;
            x = activate(*activation, &trace.output)?;
            dense = Some(trace);
        }
        let mut normed = None;
        if let Some(norm) = &head.norm {
            x = self.norm(pass, norm, &x)?;
            normed = Some(x.clone());
        }
        let out = self.trace_linear(&head.out, &x)?;
        let capped = |cap: f32| map(&out.output, |z| cap * (z / cap).tanh());
        let logits = head.soft_cap.map_or_else(|| out.output.clone(), capped);
        Ok(HeadTrace { read, tokens: hidden.rows(), dense, normed, out, logits })
    }

    pub(super) fn through_head(
        &self,
        trace: &HeadTrace,
        start: Host,
        collected: &mut Collected,
    ) -> Result<Host> {
        let head = &self.model.network.head;
        let mut relevance = self.through_linear(&head.out, &trace.out, &start, collected)?;
        if let (Some(norm), Some(normed)) = (&head.norm, &trace.normed) {
            self.through_norm(norm, normed, &relevance, collected)?;
        }
        if let (Some((layer, _)), Some(dense)) = (&head.dense, &trace.dense) {
            let before = self.through_activation(&dense.output, relevance);
            relevance = self.through_linear(layer, dense, &before, collected)?;
        }
        let rows = match &trace.read {
            HiddenStates::Of(rows) => rows,
            HiddenStates::Mean(hidden, mean) => return Ok(of_mean(hidden, mean, &relevance)),
        };
        let columns = relevance.columns();
        let mut all = vec![0.0; trace.tokens * columns];
        for (i, &row) in rows.iter().enumerate() {
            let first = row as usize * columns;
            all[first..first + columns]
                .iter_mut()
                .zip(relevance.row(i))
                .for_each(|(sum, r)| *sum += r);
        }
        Ok(Host::from_vec(trace.tokens, columns, all))
    }
}
