//! LayerNorm and RMSNorm as layers.

use crate::model::factor::{Factor, Receiver};
use crate::model::parameters::ParameterId;
use crate::model::pass::Pass;
use crate::tensor::{self, Matrix, NormKind, Result};
use std::sync::Arc;

/// LayerNorm or RMSNorm with its parameters.
#[derive(Clone, Debug)]
pub struct Norm {
    pub kind: NormKind,
    /// γ, `[hidden]`.
    pub weight: ParameterId,
    /// β, `[hidden]`; RMSNorm has none.
    pub bias: Option<ParameterId>,
    /// ε, added to the variance.
    pub epsilon: f32,
}

/// Activations saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    normalised: Matrix,
    /// 1/std of each row.
    inverse_std: Matrix,
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
        let saved = Saved { normalised: done.normalised, inverse_std: done.inverse_std };
        Ok((done.output, saved))
    }

    /// Passes on the factors and returns the gradient of `x`, which is that of the residual too.
    pub fn backward(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        self.backward_of_rows(pass, saved, output_gradient, None, receiver)
    }

    /// The same where rows are not one for each token: `tokens` has that of each row.
    pub fn backward_of_rows(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: &Matrix,
        tokens: Option<Arc<Vec<u32>>>,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        let gradient = tensor::normalise_backward(
            self.kind,
            &saved.normalised,
            &saved.inverse_std,
            pass.parameters.value(self.weight),
            output_gradient,
        )?;
        if let Some(bias) = self.bias.filter(|&bias| pass.parameters.is_trainable(bias)) {
            let output_gradient = output_gradient.clone();
            let tokens = tokens.clone();
            receiver.receive(Factor::Sum { parameter: bias, output_gradient, tokens })?;
        }
        if pass.parameters.is_trainable(self.weight) {
            receiver.receive(Factor::Scale {
                parameter: self.weight,
                input: saved.normalised,
                output_gradient: output_gradient.clone(),
                tokens,
            })?;
        }
        Ok(gradient)
    }
}
