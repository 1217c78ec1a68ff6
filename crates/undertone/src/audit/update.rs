//! White-box canary score, for an auditor who sees the weights before and after fine-tuning: how
//! much of each canary's gradient is in the weight update.
//!
//! To first order, training moves the weights by −Σ_i c_i g_i plus noise, where g_i is the gradient
//! of example i before training and c_i > 0 only for examples in the training data. The auditor
//! knows the canaries' per-example gradients G, `[canaries, weights]`, so the scores are the ridge
//! regression coefficients of the update, c = (G Gᵀ + λI)⁻¹ G (−Δw), each divided by its standard
//! error. The regression accounts for correlated gradients, so an update common to several canaries
//! is not attributed to one of them. The score is a function of the weights and the canaries, so a
//! bound on ε from it is as valid as one from losses, and usually larger.

use crate::data::{Batch, Example};
use crate::model::{Error, Gradients, Model, ParameterId, Result, Weighting};
use crate::tensor::{self, Matrix};
use nalgebra::{DMatrix, DVector};

/// Memory limit for the canaries' gradients, in bytes.
const MOST_BYTES: usize = 4 << 30;

/// Scores of canaries. Weights that either model lacks, or that are randomly initialized, are left
/// out.
pub fn by_update(before: &Model, after: &Model, canaries: &[Example]) -> Result<Vec<f64>> {
    let mut moved: Vec<(ParameterId, Vec<f32>)> = Vec::new();
    for (id, parameter) in before.parameters.iter() {
        let fresh = before.fresh.contains(&parameter.name);
        let Some(other) =
            after.parameters.find(&parameter.name).filter(|_| !fresh && parameter.trainable)
        else {
            continue;
        };
        let (old, new) = (parameter.value.to_vec()?, after.parameters.value(other).to_vec()?);
        if old.len() == new.len() && old != new {
            moved.push((id, new.iter().zip(&old).map(|(new, old)| old - new).collect()));
        }
    }
    let change: Vec<f32> = moved.iter().flat_map(|(_, change)| change.iter().copied()).collect();
    if 4 * change.len() * canaries.len() > MOST_BYTES {
        return Err(Error::Request(format!(
            "the gradients of {} canaries for {} weights do not fit into memory; use fewer \
             canaries, or score by losses",
            canaries.len(),
            change.len()
        )));
    }
    let mut rows = Vec::with_capacity(change.len() * canaries.len());
    for canary in canaries {
        let mut own = Gradients::new(&before.parameters);
        let batch = Batch::pack([canary]);
        before.train(&before.prompted(&batch), Weighting::SumOfUnits, None, &mut own)?;
        let first = rows.len();
        for (id, change) in &moved {
            match own.get(*id) {
                Some(gradient) => rows.extend(gradient.to_vec()?),
                None => rows.extend(std::iter::repeat_n(0.0, change.len())),
            }
        }
        // Normalized, since clipping also bounds all per-example gradients to the same ℓ2 norm.
        let norm =
            rows[first..].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt().max(1e-30)
                as f32;
        rows[first..].iter_mut().for_each(|x| *x /= norm);
    }
    let count = canaries.len();
    let gradients = Matrix::from_vec(count, change.len(), rows);
    let change = Matrix::from_vec(1, change.len(), change);
    let gram = tensor::product(1.0, gradients.plain(), gradients.transposed())?.to_vec()?;
    let pull = tensor::product(1.0, gradients.plain(), change.transposed())?.to_vec()?;
    let mut gram = DMatrix::from_row_slice(count, count, &gram).map(f64::from);
    // Ridge λ: eigenvalues of the Gram matrix below a hundredth are treated as noise.
    (0..count).for_each(|i| gram[(i, i)] += 0.01);
    let pull = DVector::from_iterator(count, pull.iter().map(|&x| f64::from(x)));
    let Some(inverse) = gram.cholesky().map(|decomposition| decomposition.inverse()) else {
        return Err(Error::Request("the canaries' gradients are not finite".into()));
    };
    let coefficients = &inverse * pull;
    Ok((0..count).map(|i| coefficients[i] / inverse[(i, i)].sqrt()).collect())
}
