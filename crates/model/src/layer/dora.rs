//! DoRA: a layer's weight decomposed into magnitude and direction, m ⊙ (W + s B A) / n, where n
//! contains the norm of each output's row of W + s B A.
//!
//! As in PEFT, n is treated as a constant in the backward pass. A and B therefore have LoRA's
//! gradients with the output gradient e_j multiplied by m_j / n_j, and for each example m_j has the
//! gradient Σ_t e_tj u_tj / n_j, where u = x (W + s B A)ᵀ, which has the form of a normalization
//! weight's gradient. Per-example norms are exact.

use super::linear::Lora;
use crate::parameters::{ParameterId, Parameters};
use crate::pass::Pass;
use std::sync::Arc;
use undertone_tensor::{self as tensor, Matrix, Operand, Result};

/// The magnitudes of a layer's outputs.
#[derive(Clone)]
pub struct Dora {
    /// m, as one row.
    pub magnitude: ParameterId,
    /// ‖W_j‖² for each output; W is frozen.
    squared_norms: Arc<Vec<f64>>,
}

/// The norms are omitted: they are a function of the weight, which a description of the model
/// includes separately.
impl std::fmt::Debug for Dora {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_tuple("Dora").field(&self.magnitude).finish()
    }
}

/// What the backward pass needs.
#[derive(Clone, Debug)]
pub struct Saved {
    /// m / n.
    pub scales: Vec<f32>,
    /// u / n, `[tokens, outputs]`, if the magnitudes are trained.
    pub direction: Option<Matrix>,
}

/// ‖W_j‖² for each output of a layer.
pub fn squared_norms(weight: &Matrix, inputs_first: bool) -> Result<Vec<f64>> {
    let (outputs, columns) = match inputs_first {
        true => (weight.columns(), weight.columns()),
        false => (weight.rows(), weight.columns()),
    };
    let mut sums = vec![0.0; outputs];
    for (i, row) in weight.to_vec()?.chunks_exact(columns.max(1)).enumerate() {
        for (j, x) in row.iter().enumerate() {
            sums[if inputs_first { j } else { i }] += f64::from(*x) * f64::from(*x);
        }
    }
    Ok(sums)
}

impl Dora {
    pub fn new(magnitude: ParameterId, squared_norms: Vec<f64>) -> Self {
        Self { magnitude, squared_norms: Arc::new(squared_norms) }
    }

    /// The norms n, from ‖W_j + s B_j A‖² = ‖W_j‖² + 2 s B_j A W_jᵀ + s² B_j A Aᵀ B_jᵀ; `weight` is
    /// `[inputs, outputs]`.
    fn norms(&self, parameters: &Parameters, lora: &Lora, weight: Operand) -> Result<Vec<f64>> {
        let (a, b) = (parameters.value(lora.a), parameters.value(lora.b));
        let rank = a.rows();
        let crossed = tensor::product(lora.scale, a.plain(), weight)?.to_host()?;
        let gram = tensor::product(lora.scale * lora.scale, a.plain(), a.transposed())?;
        let (gram, b) = (gram.to_host()?, b.to_host()?);
        let norm = |(j, squared): (usize, &f64)| {
            let own = b.row(j);
            let mut sum = *squared;
            for (r, &x) in own.iter().enumerate().take(rank) {
                let inner: f64 =
                    own.iter().zip(gram.row(r)).map(|(y, g)| f64::from(*y) * f64::from(*g)).sum();
                sum += f64::from(x) * (2.0 * f64::from(crossed.row(r)[j]) + inner);
            }
            // An output whose weights are all 0 initially has magnitude 0.
            sum.max(f64::from(f32::MIN_POSITIVE)).sqrt()
        };
        Ok(self.squared_norms.iter().enumerate().map(norm).collect())
    }

    /// m / n for each output.
    pub fn scales(
        &self,
        parameters: &Parameters,
        lora: &Lora,
        weight: Operand,
    ) -> Result<Vec<f32>> {
        let norms = self.norms(parameters, lora, weight)?;
        self.divided(parameters, &norms)
    }

    fn divided(&self, parameters: &Parameters, norms: &[f64]) -> Result<Vec<f32>> {
        let magnitudes = parameters.value(self.magnitude).to_vec()?;
        Ok(magnitudes.iter().zip(norms).map(|(m, n)| (f64::from(*m) / n) as f32).collect())
    }

    /// m ⊙ u / n for the rows of u.
    pub fn forward(
        &self,
        pass: &Pass,
        lora: &Lora,
        weight: Operand,
        u: &Matrix,
    ) -> Result<(Matrix, Saved)> {
        let parameters = pass.parameters;
        let norms = self.norms(parameters, lora, weight)?;
        let scales = self.divided(parameters, &norms)?;
        let is_trained = pass.keep && parameters.is_trainable(self.magnitude);
        let inverse: Vec<f32> = norms.iter().map(|n| n.recip() as f32).collect();
        let direction = is_trained.then(|| tensor::scale_columns(u, &inverse)).transpose()?;
        Ok((tensor::scale_columns(u, &scales)?, Saved { scales, direction }))
    }
}
