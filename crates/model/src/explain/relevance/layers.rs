//! Linear layers with LoRA or (IA)³, adapters, feed-forward networks and normalizations.

use super::rules::{activation, bias, linear, map, product, sum, zip};
use super::{Collected, Explainer};
use crate::layer::adapter::Adapter;
use crate::layer::feed_forward::{FeedForward, Gate};
use crate::layer::linear::Linear;
use crate::layer::norm::Norm;
use crate::{Error, Pass, Result};
use std::ops::Range;
use undertone_tensor::{self as tensor, Activation, Host, Matrix};

/// Forward pass of a linear layer.
pub(super) struct LinearTrace {
    /// The input, scaled by (IA)³ if that scales inputs.
    input: Host,
    /// Output without LoRA and without (IA)³'s factors of outputs.
    frozen: Host,
    /// For each LoRA update: s · x Aᵀ, and its product with B.
    low_rank: Vec<(Host, Host)>,
    pub output: Host,
}

pub(super) struct AdapterTrace {
    input: Host,
    down: LinearTrace,
    up: LinearTrace,
    pub output: Host,
}

pub(super) struct FeedForwardTrace {
    gate: Option<LinearTrace>,
    up: LinearTrace,
    pub down: LinearTrace,
}

fn transposed(matrix: &Host) -> Host {
    let values =
        (0..matrix.columns()).flat_map(|j| (0..matrix.rows()).map(move |i| matrix.row(i)[j]));
    Host::from_vec(matrix.columns(), matrix.rows(), values.collect())
}

pub(super) fn activate(activation: Activation, x: &Host) -> Result<Host> {
    Ok(tensor::activate(activation, &Matrix::Host(x.clone()))?.to_host()?)
}

/// Copies a range of columns into a matrix.
pub(super) fn columns(matrix: &Host, range: Range<usize>) -> Host {
    let values = (0..matrix.rows()).flat_map(|i| matrix.row(i)[range.clone()].to_vec());
    Host::from_vec(matrix.rows(), range.len(), values.collect())
}

fn set_columns(onto: &mut Host, first: usize, part: &Host) {
    let stride = onto.columns();
    for (i, row) in onto.values_mut().chunks_exact_mut(stride).enumerate() {
        row[first..first + part.columns()].copy_from_slice(part.row(i));
    }
}

pub(super) fn add_columns(onto: &mut Host, first: usize, part: &Host) {
    let stride = onto.columns();
    for (i, row) in onto.values_mut().chunks_exact_mut(stride).enumerate() {
        let row = &mut row[first..first + part.columns()];
        row.iter_mut().zip(part.row(i)).for_each(|(sum, x)| *sum += x);
    }
}

pub(super) fn add(a: &Host, b: &Host) -> Host {
    zip(a, b, |x, y| x + y)
}

fn scale_columns(matrix: &Host, factors: &[f32]) -> Host {
    let row = |i: usize| matrix.row(i).iter().zip(factors).map(|(x, factor)| x * factor);
    Host::from_vec(matrix.rows(), matrix.columns(), (0..matrix.rows()).flat_map(row).collect())
}

fn column_sums(matrix: &Host) -> Vec<f32> {
    let of = |j: usize| (0..matrix.rows()).map(|i| matrix.row(i)[j]).sum::<f32>();
    (0..matrix.columns()).map(of).collect()
}

impl Explainer {
    /// Relevance of an activation function's input, `before` (equation 7).
    pub(super) fn through_activation(&self, before: &Host, relevance: Host) -> Host {
        activation(self.activations, before, relevance)
    }

    /// The weight as `[outputs, inputs]`.
    fn weight(&self, layer: &Linear) -> Result<Host> {
        let weight = self.value(layer.weight)?;
        Ok(if layer.inputs_first { transposed(&weight) } else { weight })
    }

    pub(super) fn trace_linear(&self, layer: &Linear, input: &Host) -> Result<LinearTrace> {
        if layer.lora.iter().any(|lora| lora.dora.is_some()) {
            return Err(Error::Tuning(
                "relevance is not supported for DoRA; use LoRA without it".into(),
            ));
        }
        let factors = match &layer.rescaling {
            Some(rescaling) => Some((self.value(rescaling.factors)?, rescaling.of_inputs)),
            None => None,
        };
        let scaled = |x: &Host, of_inputs: bool| match &factors {
            Some((factors, side)) if *side == of_inputs => scale_columns(x, &factors.dense()),
            _ => x.clone(),
        };
        let input = &scaled(input, true);
        let mut frozen = product(input, false, &self.weight(layer)?, true)?;
        if let Some(id) = layer.bias {
            let bias = self.value(id)?;
            let columns = bias.columns();
            frozen.values_mut().chunks_exact_mut(columns).for_each(|row| {
                row.iter_mut().zip(bias.row(0)).for_each(|(y, b)| *y += b);
            });
        }
        let (mut low_rank, mut output) = (Vec::new(), frozen.clone());
        for lora in &layer.lora {
            let narrow =
                map(&product(input, false, &self.value(lora.a)?, true)?, |x| lora.scale * x);
            let added = product(&narrow, false, &self.value(lora.b)?, true)?;
            add_columns(&mut output, lora.range.start, &added);
            low_rank.push((narrow, added));
        }
        let output = scaled(&output, false);
        Ok(LinearTrace { input: input.clone(), frozen, low_rank, output })
    }

    /// Returns the relevance of the layer's input.
    pub(super) fn through_linear(
        &self,
        layer: &Linear,
        trace: &LinearTrace,
        relevance: &Host,
        collected: &mut Collected,
    ) -> Result<Host> {
        let of_outputs = layer.rescaling.as_ref().filter(|rescaling| !rescaling.of_inputs);
        if let Some(rescaling) = of_outputs {
            collected.add(rescaling.factors, &column_sums(relevance));
        }
        let (mut of_frozen, mut of_added) = (relevance.clone(), Vec::new());
        for (lora, (_, added)) in layer.lora.iter().zip(&trace.low_rank) {
            let own = columns(relevance, lora.range.clone());
            // At B = 0, the branch takes no relevance from the frozen layer.
            if self.is_probed(lora.b) {
                of_added.push(own);
                continue;
            }
            let (frozen, added) = sum(&columns(&trace.frozen, lora.range.clone()), added, &own);
            set_columns(&mut of_frozen, lora.range.start, &frozen);
            of_added.push(added);
        }
        let trainable = self.is_trainable(layer.weight);
        let bias_values = layer.bias.map(|id| self.value(id)).transpose()?;
        let in_z = bias_values.as_ref().map(|bias| bias.row(0));
        let weight = self.weight(layer)?;
        let through = linear(self.rule, &trace.input, &weight, in_z, &of_frozen, trainable)?;
        if let Some(weights) = through.weights {
            let weights = if layer.inputs_first { transposed(&weights) } else { weights };
            collected.add(layer.weight, &weights.dense());
        }
        if let Some(id) = layer.bias.filter(|&id| self.is_trainable(id)) {
            collected.add(id, &bias(&trace.frozen, self.value(id)?.row(0), &of_frozen));
        }
        let mut inputs = through.inputs;
        for ((lora, (narrow, _)), of_added) in layer.lora.iter().zip(&trace.low_rank).zip(&of_added)
        {
            // Equation 17: through B, then through A.
            let probed = self.is_probed(lora.b);
            let (of_b, of_narrow) = match probed {
                true => {
                    let through = collected.probes.through(self.rule, lora.b, narrow, of_added)?;
                    (Some(through.weight), through.inputs)
                }
                false => {
                    let b = self.value(lora.b)?;
                    let through = linear(self.rule, narrow, &b, None, of_added, true)?;
                    (through.weights, through.inputs)
                }
            };
            collected.add(lora.b, &of_b.map(|w| w.dense().into_owned()).unwrap_or_default());
            let a = self.value(lora.a)?;
            let through = linear(self.rule, &trace.input, &a, None, &of_narrow, true)?;
            collected
                .add(lora.a, &through.weights.map(|w| w.dense().into_owned()).unwrap_or_default());
            if !probed {
                inputs = add(&inputs, &through.inputs);
            }
        }
        if let Some(rescaling) = layer.rescaling.as_ref().filter(|rescaling| rescaling.of_inputs) {
            collected.add(rescaling.factors, &column_sums(&inputs));
        }
        Ok(inputs)
    }

    pub(super) fn trace_adapter(&self, adapter: &Adapter, input: Host) -> Result<AdapterTrace> {
        let down = self.trace_linear(&adapter.down, &input)?;
        let up = self.trace_linear(&adapter.up, &activate(adapter.activation, &down.output)?)?;
        let output = add(&input, &up.output);
        Ok(AdapterTrace { input, down, up, output })
    }

    /// Equations 14 and 15.
    pub(super) fn through_adapter(
        &self,
        adapter: &Adapter,
        trace: &AdapterTrace,
        relevance: &Host,
        collected: &mut Collected,
    ) -> Result<Host> {
        if self.is_probed(adapter.up.weight) {
            let up = adapter.up.weight;
            let through = collected.probes.through(self.rule, up, &trace.up.input, relevance)?;
            collected.add(up, &through.weight.dense());
            let narrow = self.through_activation(&trace.down.output, through.inputs);
            self.through_linear(&adapter.down, &trace.down, &narrow, collected)?;
            // At zero the adapter is the identity and takes no relevance from its input.
            return Ok(relevance.clone());
        }
        let (past, of_added) = sum(&trace.input, &trace.up.output, relevance);
        let narrow = self.through_linear(&adapter.up, &trace.up, &of_added, collected)?;
        let narrow = self.through_activation(&trace.down.output, narrow);
        let of_input = self.through_linear(&adapter.down, &trace.down, &narrow, collected)?;
        Ok(add(&past, &of_input))
    }

    pub(super) fn trace_feed_forward(
        &self,
        layer: &FeedForward,
        input: &Host,
    ) -> Result<FeedForwardTrace> {
        let up = self.trace_linear(&layer.up, input)?;
        let mut traced_gate = None;
        let wide = match &layer.gate {
            Gate::Absent => activate(layer.activation, &up.output)?,
            Gate::Layer(gate) => {
                let gate = self.trace_linear(gate, input)?;
                let opened = activate(layer.activation, &gate.output)?;
                traced_gate = Some(gate);
                zip(&opened, &up.output, |g, u| g * u)
            }
            Gate::Fused => {
                let inner = up.output.columns() / 2;
                let opened = activate(layer.activation, &columns(&up.output, 0..inner))?;
                zip(&opened, &columns(&up.output, inner..2 * inner), |g, u| g * u)
            }
        };
        let down = self.trace_linear(&layer.down, &wide)?;
        Ok(FeedForwardTrace { gate: traced_gate, up, down })
    }

    pub(super) fn through_feed_forward(
        &self,
        layer: &FeedForward,
        trace: &FeedForwardTrace,
        relevance: &Host,
        collected: &mut Collected,
    ) -> Result<Host> {
        let wide = self.through_linear(&layer.down, &trace.down, relevance, collected)?;
        // By equation 8, each factor of an elementwise product receives all of its relevance, and
        // by equation 11 half of it.
        let half = map(&wide, |r| 0.5 * r);
        match (&layer.gate, &trace.gate) {
            (Gate::Layer(gate), Some(of_gate)) => {
                let of_opened = self.through_activation(&of_gate.output, half.clone());
                let of_gate_input = self.through_linear(gate, of_gate, &of_opened, collected)?;
                let other = self.through_linear(&layer.up, &trace.up, &half, collected)?;
                Ok(add(&of_gate_input, &other))
            }
            (Gate::Fused, _) => {
                let (rows, inner) = (half.rows(), half.columns());
                let mut both = Host::from_vec(rows, 2 * inner, vec![0.0; 2 * rows * inner]);
                let gate = columns(&trace.up.output, 0..inner);
                set_columns(&mut both, 0, &self.through_activation(&gate, half.clone()));
                set_columns(&mut both, inner, &half);
                self.through_linear(&layer.up, &trace.up, &both, collected)
            }
            _ => {
                let before = self.through_activation(&trace.up.output, wide);
                self.through_linear(&layer.up, &trace.up, &before, collected)
            }
        }
    }

    pub(super) fn norm(&self, pass: &Pass, norm: &Norm, x: &Host) -> Result<Host> {
        Ok(norm.forward(pass, &Matrix::Host(x.clone()), None)?.0.to_host()?)
    }

    /// Normalization passes relevance unchanged; the relevance of its bias is read off.
    pub(super) fn through_norm(
        &self,
        norm: &Norm,
        output: &Host,
        relevance: &Host,
        collected: &mut Collected,
    ) -> Result<()> {
        if let Some(id) = norm.bias.filter(|&id| self.is_trainable(id)) {
            collected.add(id, &bias(output, self.value(id)?.row(0), relevance));
        }
        Ok(())
    }
}
