//! Bottleneck adapter, x + up(f(down x)), after attention and after the feed-forward network.

use super::linear::{self, Linear};
use crate::factor::Receiver;
use crate::pass::Pass;
use undertone_tensor::{self as tensor, Activation, Matrix, Output, Result};

/// A bottleneck adapter.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Down-projection to the bottleneck.
    pub down: Linear,
    /// Up-projection; initialized to zero, so that a new adapter is the identity.
    pub up: Linear,
    /// Activation function f.
    pub activation: Activation,
}

/// Activations saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    narrow: Matrix,
    down: linear::Saved,
    up: linear::Saved,
}

impl Adapter {
    /// x + up(f(down x)).
    pub fn forward(&self, pass: &Pass, x: &Matrix) -> Result<(Matrix, Saved)> {
        let (narrow, down) = self.down.forward(pass, x)?;
        let (added, up) = self.up.forward(pass, &tensor::activate(self.activation, &narrow)?)?;
        Ok((tensor::add(x, &added)?, Saved { narrow, down, up }))
    }

    /// Emits the factors and returns the gradient of x.
    pub fn backward(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        let active = self.up.backward_alone(pass, saved.up, output_gradient, receiver)?;
        let narrow = tensor::activate_backward(self.activation, &saved.narrow, &active)?;
        let mut gradient =
            Output::new(&output_gradient.device(), output_gradient.rows(), self.down.inputs);
        gradient.copy(output_gradient)?;
        self.down.backward(pass, saved.down, &narrow, Some(&mut gradient), receiver)?;
        gradient.finish()
    }
}
