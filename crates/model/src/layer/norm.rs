//! LayerNorm and RMSNorm as layers.

use crate::factor::{Factor, Receiver};
use crate::parameters::ParameterId;
use crate::pass::Pass;
use std::sync::Arc;
use undertone_tensor::{self as tensor, Matrix, NormKind, Result};

/// LayerNorm or RMSNorm with its parameters.
#[derive(Clone, Debug)]
pub struct Norm {
    pub kind: NormKind,
    /// γ, `[hidden]`.
    pub weight: ParameterId,
    /// β, `[hidden]`; absent in RMSNorm.
    pub bias: Option<ParameterId>,
    /// ε, added to the variance.
    pub epsilon: f32,
}

/// Activations saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    normalized: Matrix,
    /// 1/std of each row.
    inverse_std: Matrix,
}

impl Norm {
    /// Normalizes `x` or `x + residual`.
    pub fn forward(
        &self,
        pass: &Pass,
        x: &Matrix,
        residual: Option<&Matrix>,
    ) -> Result<(Matrix, Saved)> {
        let done = tensor::normalize(
            self.kind,
            x,
            residual,
            pass.parameters.value(self.weight),
            self.bias.map(|bias| pass.parameters.value(bias)),
            self.epsilon,
        )?;
        let saved = Saved { normalized: done.normalized, inverse_std: done.inverse_std };
        Ok((done.output, saved))
    }

    /// Emits the factors and returns the gradient of `x`, which is also that of the residual.
    pub fn backward(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        self.backward_of_rows(pass, saved, output_gradient, None, receiver)
    }

    /// Like `backward`, if rows do not correspond one-to-one to tokens; `tokens` gives the token of
    /// each row.
    pub fn backward_of_rows(
        &self,
        pass: &Pass,
        saved: Saved,
        output_gradient: &Matrix,
        tokens: Option<Arc<Vec<u32>>>,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        let gradient = tensor::normalize_backward(
            self.kind,
            &saved.normalized,
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
                input: saved.normalized,
                output_gradient: output_gradient.clone(),
                tokens,
            })?;
        }
        Ok(gradient)
    }
}
