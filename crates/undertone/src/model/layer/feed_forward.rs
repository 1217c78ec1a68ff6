//! Feed-forward network (MLP) of a transformer block, with or without a gate.

use super::linear::{self, Linear};
use crate::model::factor::Receiver;
use crate::model::pass::Pass;
use crate::tensor::{self, Activation, Matrix, Output, Result};

/// down(f(up x)), or down(f(gate x) ⊙ up x).
#[derive(Clone, Debug)]
pub struct FeedForward {
    /// Gate projection, in gated networks.
    pub gate: Option<Linear>,
    /// Up-projection to the intermediate size.
    pub up: Linear,
    /// Down-projection to the hidden size.
    pub down: Linear,
    /// Activation function f.
    pub activation: Activation,
}

/// Activations saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    gate: Option<(Matrix, linear::Saved)>,
    up: (Matrix, linear::Saved),
    down: linear::Saved,
}

impl FeedForward {
    /// The output of each token, `[tokens, hidden]`.
    pub fn forward(&self, pass: &Pass, x: &Matrix) -> Result<(Matrix, Saved)> {
        let up = self.up.forward(pass, x)?;
        let gate = self.gate.as_ref().map(|gate| gate.forward(pass, x)).transpose()?;
        let wide = match &gate {
            Some((gate, _)) => tensor::gate(self.activation, gate, &up.0)?,
            None => tensor::activate(self.activation, &up.0)?,
        };
        let (y, down) = self.down.forward(pass, &wide)?;
        Ok((y, Saved { gate, up, down }))
    }

    /// Passes on the factors and adds the gradient of the input to `input_gradient`.
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
            (Some(layer), Some((gate, gate_saved))) => {
                let (gate_gradient, up_gradient) =
                    tensor::gate_backward(self.activation, &gate, &up, &wide_gradient)?;
                drop((gate, up, wide_gradient));
                layer.backward(pass, gate_saved, &gate_gradient, Some(input_gradient), receiver)?;
                up_gradient
            }
            _ => tensor::activate_backward(self.activation, &up, &wide_gradient)?,
        };
        self.up.backward(pass, up_saved, &up_gradient, Some(input_gradient), receiver)
    }

    /// The two or three linear layers.
    pub fn layers(&self) -> impl Iterator<Item = &Linear> {
        self.gate.iter().chain([&self.up, &self.down])
    }

    pub fn layers_mut(&mut self) -> impl Iterator<Item = &mut Linear> {
        self.gate.iter_mut().chain([&mut self.up, &mut self.down])
    }
}
