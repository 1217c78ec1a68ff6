//! A bottleneck adapter: x + up(f(down x)), put after attention and after the feed-forward network.

use super::linear::{self, Linear};
use crate::model::factor::Receiver;
use crate::model::pass::Pass;
use crate::tensor::{self, Activation, Matrix, Output, Result};

/// The adapter.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Into the narrow space.
    pub down: Linear,
    /// Out of it; starts at zero, so that a new adapter changes nothing.
    pub up: Linear,
    /// f.
    pub activation: Activation,
}

/// What the backward pass needs.
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

    /// The gradient of x.
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
