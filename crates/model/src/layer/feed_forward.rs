//! Feed-forward network (MLP) of a transformer block, optionally gated.

use super::linear::{self, Linear};
use crate::factor::Receiver;
use crate::pass::Pass;
use undertone_tensor::{self as tensor, Activation, Matrix, Output, Result};

/// down(f(up x)), or down(f(gate x) ⊙ up x).
#[derive(Clone, Debug)]
pub struct FeedForward {
    pub gate: Gate,
    /// Up-projection to the intermediate size.
    pub up: Linear,
    /// Down-projection to the hidden size.
    pub down: Linear,
    /// Activation function f.
    pub activation: Activation,
}

/// The gate of a feed-forward network.
#[derive(Clone, Debug)]
pub enum Gate {
    /// No gate.
    Absent,
    /// A separate layer next to the up-projection (Llama).
    Layer(Box<Linear>),
    /// The up-projection outputs `[gate | up]` (Phi-3, ModernBERT).
    Fused,
}

/// Activations saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    gate: Option<(Matrix, linear::Saved)>,
    up: (Matrix, linear::Saved),
    down: linear::Saved,
}

/// Splits a fused layer's outputs into gate and up.
fn halves(both: &Matrix) -> Result<(Matrix, Matrix)> {
    let inner = both.columns() / 2;
    Ok((both.column_range(0..inner)?, both.column_range(inner..2 * inner)?))
}

impl FeedForward {
    /// The output for each token, `[tokens, hidden]`.
    pub fn forward(&self, pass: &Pass, x: &Matrix) -> Result<(Matrix, Saved)> {
        let up = self.up.forward(pass, x)?;
        let mut saved_gate = None;
        let wide = match &self.gate {
            Gate::Absent => tensor::activate(self.activation, &up.0)?,
            Gate::Layer(layer) => {
                let (gate, saved) = layer.forward(pass, x)?;
                let wide = tensor::gate(self.activation, &gate, &up.0)?;
                saved_gate = Some((gate, saved));
                wide
            }
            Gate::Fused => {
                let (gate, up) = halves(&up.0)?;
                tensor::gate(self.activation, &gate, &up)?
            }
        };
        let (y, down) = self.down.forward(pass, &wide)?;
        Ok((y, Saved { gate: saved_gate, up, down }))
    }

    /// Emits the factors and adds the gradient of the input to `input_gradient`.
    pub fn backward(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: &Matrix,
        input_gradient: &mut Output,
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        let wide_gradient =
            self.down.backward_alone(pass, saved.down, output_gradient, receiver)?;
        let (up, up_saved) = saved.up;
        let up_gradient = match (&self.gate, saved.gate) {
            (Gate::Layer(layer), Some((gate, gate_saved))) => {
                let (gate_gradient, up_gradient) =
                    tensor::gate_backward(self.activation, &gate, &up, &wide_gradient)?;
                drop((gate, up, wide_gradient));
                layer.backward(pass, gate_saved, &gate_gradient, Some(input_gradient), receiver)?;
                up_gradient
            }
            (Gate::Fused, _) => {
                let (gate, up) = halves(&up)?;
                let (of_gate, of_up) =
                    tensor::gate_backward(self.activation, &gate, &up, &wide_gradient)?;
                let inner = gate.columns();
                let mut both = Output::new(&gate.device(), gate.rows(), 2 * inner);
                both.add_block(0..inner, &of_gate)?;
                both.add_block(inner..2 * inner, &of_up)?;
                both.finish()?
            }
            _ => tensor::activate_backward(self.activation, &up, &wide_gradient)?,
        };
        self.up.backward(pass, up_saved, &up_gradient, Some(input_gradient), receiver)
    }

    /// The two or three linear layers.
    pub fn layers(&self) -> impl Iterator<Item = &Linear> {
        let gate = match &self.gate {
            Gate::Layer(gate) => Some(&**gate),
            Gate::Absent | Gate::Fused => None,
        };
        gate.into_iter().chain([&self.up, &self.down])
    }

    pub fn layers_mut(&mut self) -> impl Iterator<Item = &mut Linear> {
        let gate = match &mut self.gate {
            Gate::Layer(gate) => Some(&mut **gate),
            Gate::Absent | Gate::Fused => None,
        };
        gate.into_iter().chain([&mut self.up, &mut self.down])
    }
}
