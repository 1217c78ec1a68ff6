//! LayerNorm and RMSNorm as layers.

use crate::model::factor::{Factor, Receiver};
use crate::model::parameters::ParameterId;
use crate::model::pass::Pass;
use crate::tensor::{self, Matrix, NormKind, Result};

/// A normalisation with its parameters.
#[derive(Clone, Debug)]
pub struct Norm {
    /// Which of the two.
    pub kind: NormKind,
    /// γ.
    pub weight: ParameterId,
    /// β, which RMSNorm lacks.
    pub bias: Option<ParameterId>,
    /// Added to the variance.
    pub epsilon: f32,
}

/// What the backward pass needs.
#[derive(Clone, Debug)]
pub struct Saved {
    normalised: Matrix,
    inverse_deviation: Matrix,
}

impl Norm {
    /// Normalises `x`, or `x + residual`.
    pub fn forward(
        &self,
        pass: &Pass,
        x: &Matrix,
        residual: Option<&Matrix>,
    ) -> Result<(Matrix, Saved)> {
        let done = tensor::normalise(
            self.kind,
            x,
            residual,
            pass.parameters.value(self.weight),
            self.bias.map(|bias| pass.parameters.value(bias)),
            self.epsilon,
        )?;
        let saved =
            Saved { normalised: done.normalised, inverse_deviation: done.inverse_deviation };
        Ok((done.output, saved))
    }

    /// The gradient of `x`, which is that of the residual too.
    pub fn backward(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        let gradient = tensor::normalise_backward(
            self.kind,
            &saved.normalised,
            &saved.inverse_deviation,
            pass.parameters.value(self.weight),
            output_gradient,
        )?;
        if let Some(bias) = self.bias.filter(|&bias| pass.parameters.is_trainable(bias)) {
            let output_gradient = output_gradient.clone();
            receiver.receive(Factor::Sum { parameter: bias, output_gradient, tokens: None })?;
        }
        if pass.parameters.is_trainable(self.weight) {
            receiver.receive(Factor::Scale {
                parameter: self.weight,
                input: saved.normalised,
                output_gradient: output_gradient.clone(),
                tokens: None,
            })?;
        }
        Ok(gradient)
    }
}
