//! Linear layer, y = x Wᵀ + b, optionally with a LoRA update s · (x Aᵀ) Bᵀ (with or without DoRA's
//! magnitudes) or with the scaling vectors of (IA)³.

use super::dora::{self, Dora};
use crate::factor::{Factor, Receiver};
use crate::parameters::{ParameterId, Parameters};
use crate::pass::Pass;
use std::ops::Range;
use undertone_tensor::{self as tensor, Dropout, Matrix, Operand, Output, Result};

/// A linear layer, with optional LoRA.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Module path, such as `bert.encoder.layer.0.attention.self.query`.
    pub name: String,
    /// Weight W.
    pub weight: ParameterId,
    /// Bias b, `[outputs]`.
    pub bias: Option<ParameterId>,
    /// Number of input features.
    pub inputs: usize,
    /// Number of output features.
    pub outputs: usize,
    /// Whether W is stored as `[inputs, outputs]`, as in GPT-2, rather than `[outputs, inputs]`.
    pub inputs_first: bool,
    /// Names of the equally sized parts of a fused layer's outputs; empty if the layer is not
    /// fused.
    pub parts: &'static [&'static str],
    /// LoRA updates of the layer: one for all outputs, or several for individual parts.
    pub lora: Vec<Lora>,
    /// (IA)³ scaling of the layer.
    pub rescaling: Option<Rescaling>,
}

/// (IA)³: a learned scaling factor per output or per input.
#[derive(Clone, Debug)]
pub struct Rescaling {
    /// The scaling factors, as one row.
    pub factors: ParameterId,
    /// Whether inputs are scaled, rather than outputs (including the bias).
    pub of_inputs: bool,
}

/// LoRA: the low-rank update s · (dropout(x) Aᵀ) Bᵀ.
#[derive(Clone, Debug)]
pub struct Lora {
    /// A, `[rank, inputs]`.
    pub a: ParameterId,
    /// B, `[outputs, rank]`, for the outputs in `range`.
    pub b: ParameterId,
    /// The layer's outputs that the update covers.
    pub range: Range<usize>,
    /// Scale s.
    pub scale: f32,
    /// Dropout probability before A.
    pub dropout: f32,
    /// Index that distinguishes this layer's dropout mask.
    pub site: u64,
    /// Magnitudes of the layer's outputs (DoRA).
    pub dora: Option<Dora>,
}

/// Activations saved for the backward pass.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    /// The input, if the weight is trainable.
    input: Option<Matrix>,
    low_rank: Vec<SavedLora>,
    dora: Option<dora::Saved>,
    /// The values that the (IA)³ factors multiply.
    rescaled: Option<Matrix>,
}

#[derive(Clone, Debug)]
struct SavedLora {
    /// dropout(x), if A is trainable.
    input: Option<Matrix>,
    /// s · dropout(x) Aᵀ.
    projected: Matrix,
    dropout: Option<Dropout>,
}

impl Linear {
    /// An unfused layer with weight `[outputs, inputs]` and without LoRA.
    pub fn plain(
        name: String,
        weight: ParameterId,
        bias: Option<ParameterId>,
        [inputs, outputs]: [usize; 2],
    ) -> Self {
        let (inputs_first, parts, lora) = (false, &[][..], Vec::new());
        Self { name, weight, bias, inputs, outputs, inputs_first, parts, lora, rescaling: None }
    }

    /// All parameters of the layer, including LoRA, DoRA and (IA)³.
    pub fn parameters(&self) -> impl Iterator<Item = ParameterId> {
        let magnitude = |lora: &Lora| lora.dora.as_ref().map(|dora| dora.magnitude);
        let lora = self.lora.iter().flat_map(move |lora| {
            [Some(lora.a), Some(lora.b), magnitude(lora)].into_iter().flatten()
        });
        let factors = self.rescaling.iter().map(|rescaling| rescaling.factors);
        std::iter::once(self.weight).chain(self.bias).chain(lora).chain(factors)
    }

    /// The weight as right operand of a matrix product, `[inputs, outputs]`.
    pub fn factor<'a>(&self, parameters: &'a Parameters) -> Operand<'a> {
        parameters.value(self.weight).transposed().turned(self.inputs_first)
    }

    /// Whether LoRA applies to individual parts of a fused layer.
    fn has_lora_of_parts(&self) -> bool {
        self.lora.iter().any(|lora| lora.range != (0..self.outputs))
    }

    /// x Wᵀ + b, one part at a time: the output is written in disjoint blocks, and LoRA adds to the
    /// block of its part.
    fn parts_forward_into(
        &self,
        parameters: &Parameters,
        x: &Matrix,
        out: &mut Output,
        first: usize,
    ) -> Result<()> {
        let width = self.outputs / self.parts.len();
        for part in 0..self.parts.len() {
            let own = part * width..(part + 1) * width;
            let columns = first + own.start..first + own.end;
            if let Some(bias) = self.bias {
                let bias = parameters.value(bias).column_range(own.clone())?;
                out.fill_rows(columns.clone(), &bias)?;
            }
            let weight = parameters.value(self.weight);
            if self.inputs_first {
                let weight = weight.column_range(own)?;
                out.add_product(columns, 1.0, x.plain(), weight.plain())?;
            } else {
                let weight = weight.row_range(own)?;
                out.add_product(columns, 1.0, x.plain(), weight.transposed())?;
            }
        }
        Ok(())
    }

    /// The forward pass, writing the output into a range of columns of `out`.
    pub fn forward_into(
        &self,
        pass: &Pass,
        x: &Matrix,
        out: &mut Output,
        columns: Range<usize>,
    ) -> Result<Saved> {
        let Some(Rescaling { factors, of_inputs }) = self.rescaling else {
            return self.forward_unscaled(pass, x, out, columns);
        };
        let factors = pass.parameters.value(factors).to_vec()?;
        if of_inputs {
            let scaled = tensor::scale_columns(x, &factors)?;
            let saved = self.forward_unscaled(pass, &scaled, out, columns)?;
            return Ok(Saved { rescaled: pass.keep.then(|| x.clone()), ..saved });
        }
        let mut own = Output::new(&x.device(), x.rows(), self.outputs);
        let saved = self.forward_unscaled(pass, x, &mut own, 0..self.outputs)?;
        let unscaled = own.finish()?;
        out.add_block(columns, &tensor::scale_columns(&unscaled, &factors)?)?;
        Ok(Saved { rescaled: pass.keep.then_some(unscaled), ..saved })
    }

    /// LoRA with DoRA magnitudes, if the layer has it.
    fn dora(&self) -> Option<(&Lora, &Dora)> {
        self.lora.iter().find_map(|lora| Some((lora, lora.dora.as_ref()?)))
    }

    /// The forward pass without (IA)³.
    fn forward_unscaled(
        &self,
        pass: &Pass,
        x: &Matrix,
        out: &mut Output,
        columns: Range<usize>,
    ) -> Result<Saved> {
        let Some((lora, dora)) = self.dora() else {
            return self.forward_sum(pass, x, out, columns, self.bias);
        };
        let mut own = Output::new(&x.device(), x.rows(), self.outputs);
        let saved = self.forward_sum(pass, x, &mut own, 0..self.outputs, None)?;
        let weight = self.factor(pass.parameters);
        let (scaled, kept) = dora.forward(pass, lora, weight, &own.finish()?)?;
        if let Some(bias) = self.bias {
            out.fill_rows(columns.clone(), pass.parameters.value(bias))?;
        }
        out.add_block(columns, &scaled)?;
        Ok(Saved { dora: pass.keep.then_some(kept), ..saved })
    }

    /// x Wᵀ plus LoRA and bias.
    fn forward_sum(
        &self,
        pass: &Pass,
        x: &Matrix,
        out: &mut Output,
        columns: Range<usize>,
        bias: Option<ParameterId>,
    ) -> Result<Saved> {
        let parameters = pass.parameters;
        if self.has_lora_of_parts() {
            self.parts_forward_into(parameters, x, out, columns.start)?;
        } else {
            if let Some(bias) = bias {
                out.fill_rows(columns.clone(), parameters.value(bias))?;
            }
            let panels = pass.panels.and_then(|panels| panels.get(&self.weight));
            if !panels.is_some_and(|panels| out.add_panels(columns.clone(), x, panels)) {
                out.add_product(columns.clone(), 1.0, x.plain(), self.factor(parameters))?;
            }
        }
        let mut saved = Saved::default();
        if pass.keep && parameters.is_trainable(self.weight) {
            saved.input = Some(x.clone());
        }
        for lora in &self.lora {
            let dropout = pass.dropout(lora.dropout, lora.site);
            let input = match dropout {
                Some(dropout) => tensor::drop_out(dropout, x)?,
                None => x.clone(),
            };
            let projected =
                tensor::product(lora.scale, input.plain(), parameters.value(lora.a).transposed())?;
            let first = columns.start;
            out.add_product(
                first + lora.range.start..first + lora.range.end,
                1.0,
                projected.plain(),
                parameters.value(lora.b).transposed(),
            )?;
            let input = Some(input).filter(|_| parameters.is_trainable(lora.a));
            saved.low_rank.extend(pass.keep.then_some(SavedLora { input, projected, dropout }));
        }
        Ok(saved)
    }

    /// The forward pass, `[tokens, outputs]`.
    pub fn forward(&self, pass: &Pass, x: &Matrix) -> Result<(Matrix, Saved)> {
        let mut out = Output::new(&x.device(), x.rows(), self.outputs);
        let saved = self.forward_into(pass, x, &mut out, 0..self.outputs)?;
        Ok((out.finish()?, saved))
    }

    /// Emits the factors and adds the gradient of the input to `input_gradient`, if given.
    pub fn backward(
        &self,
        pass: &Pass,
        mut saved: Saved,
        output_gradient: &Matrix,
        input_gradient: Option<&mut Output>,
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        let Some(Rescaling { factors: parameter, of_inputs }) = self.rescaling else {
            return self.backward_unscaled(pass, saved, output_gradient, input_gradient, receiver);
        };
        let factors = pass.parameters.value(parameter).to_vec()?;
        let kept = saved.rescaled.take().filter(|_| pass.parameters.is_trainable(parameter));
        // The gradient with respect to the scaled values; multiplied by the factors, it gives the
        // gradient with respect to the unscaled values.
        let of_product = match of_inputs {
            true => {
                let (rows, device) = (output_gradient.rows(), output_gradient.device());
                let mut own = Output::new(&device, rows, self.inputs);
                let own_gradient = Some(&mut own);
                self.backward_unscaled(pass, saved, output_gradient, own_gradient, receiver)?;
                let of_product = own.finish()?;
                if let Some(out) = input_gradient {
                    out.add(&tensor::scale_columns(&of_product, &factors)?)?;
                }
                of_product
            }
            false => {
                let unscaled = tensor::scale_columns(output_gradient, &factors)?;
                self.backward_unscaled(pass, saved, &unscaled, input_gradient, receiver)?;
                output_gradient.clone()
            }
        };
        if let Some(input) = kept {
            let output_gradient = of_product;
            receiver.receive(Factor::Scale { parameter, input, output_gradient, tokens: None })?;
        }
        Ok(())
    }

    /// The backward pass without (IA)³.
    fn backward_unscaled(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: &Matrix,
        input_gradient: Option<&mut Output>,
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        let parameters = pass.parameters;
        // The bias is not scaled by magnitudes.
        let of_bias = output_gradient;
        let scaled;
        let output_gradient = match (self.dora(), saved.dora) {
            (Some((_, dora)), Some(kept)) => {
                if let Some(input) = kept.direction {
                    receiver.receive(Factor::Scale {
                        parameter: dora.magnitude,
                        input,
                        output_gradient: output_gradient.clone(),
                        tokens: None,
                    })?;
                }
                scaled = tensor::scale_columns(output_gradient, &kept.scales)?;
                &scaled
            }
            _ => output_gradient,
        };
        let mut low_rank_gradients = Vec::new();
        for (lora, kept) in self.lora.iter().zip(saved.low_rank) {
            let output_gradient = match lora.range == (0..self.outputs) {
                true => output_gradient.clone(),
                false => output_gradient.column_range(lora.range.clone())?,
            };
            let b = parameters.value(lora.b);
            let gradient = tensor::product(lora.scale, output_gradient.plain(), b.plain())?;
            if parameters.is_trainable(lora.b) {
                receiver.receive(Factor::Product {
                    parameter: lora.b,
                    input: kept.projected,
                    output_gradient,
                    inputs_first: false,
                    tokens: None,
                })?;
            }
            if let Some(input) = kept.input {
                receiver.receive(Factor::Product {
                    parameter: lora.a,
                    input,
                    output_gradient: gradient.clone(),
                    inputs_first: false,
                    tokens: None,
                })?;
            }
            low_rank_gradients.push((gradient, lora.a, kept.dropout));
        }
        if let Some(out) = input_gradient {
            let weight = parameters.value(self.weight).plain().turned(self.inputs_first);
            out.add_product(0..self.inputs, 1.0, output_gradient.plain(), weight)?;
            for (gradient, a, dropout) in low_rank_gradients {
                let a = parameters.value(a);
                match dropout {
                    None => out.add_product(0..self.inputs, 1.0, gradient.plain(), a.plain())?,
                    Some(dropout) => {
                        let through = tensor::product(1.0, gradient.plain(), a.plain())?;
                        out.add(&tensor::drop_out(dropout, &through)?)?;
                    }
                }
            }
        }
        if let Some(bias) = self.bias.filter(|&bias| parameters.is_trainable(bias)) {
            let output_gradient = of_bias.clone();
            receiver.receive(Factor::Sum { parameter: bias, output_gradient, tokens: None })?;
        }
        if let Some(input) = saved.input {
            receiver.receive(Factor::Product {
                parameter: self.weight,
                input,
                output_gradient: output_gradient.clone(),
                inputs_first: self.inputs_first,
                tokens: None,
            })?;
        }
        Ok(())
    }

    /// The backward pass, returning the gradient of the input, `[tokens, inputs]`.
    pub fn backward_alone(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        let mut out = Output::new(&output_gradient.device(), output_gradient.rows(), self.inputs);
        self.backward(pass, saved, output_gradient, Some(&mut out), receiver)?;
        out.finish()
    }
}
