//! A score for whoever sees the weights before and after training: how much of each canary is in
//! their change.
//!
//! To first order training moves weights by −Σ_i c_i g_i and noise, where g_i is the gradient of
//! example i before training and c_i is above 0 only for those that were in. The auditor knows the
//! canaries' gradients G, so the scores are the coefficients that explain the change best, c = (G
//! Gᵀ + λI)⁻¹ G (−Δw), each over its standard error. What canaries pull alike is so attributed to
//! all of them and not mistaken for one. The score is a function of the weights and of the
//! canaries, so a bound from it holds as one from losses does; it finds more.

use crate::data::{Batch, Example};
use crate::model::{Error, Gradients, Model, ParameterId, Result, Weighting};
use crate::tensor::{self, Matrix};
use nalgebra::{DMatrix, DVector};

/// The most memory that gradients may take.
const MOST_BYTES: usize = 4 << 30;

/// The scores of canaries. Weights that either model lacks, or that were drawn at random for it,
/// are left out.
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
            "{} canaries of {} weights do not fit into memory; take fewer canaries, or judge by \
             losses",
            canaries.len(),
            change.len()
        )));
    }
    let mut rows = Vec::with_capacity(change.len() * canaries.len());
    for canary in canaries {
        let mut found = Gradients::new(&before.parameters);
        before.train(&Batch::pack([canary]), Weighting::SumOfUnits, None, &mut found)?;
        let first = rows.len();
        for (id, change) in &moved {
            match found.get(*id) {
                Some(gradient) => rows.extend(gradient.to_vec()?),
                None => rows.extend(std::iter::repeat_n(0.0, change.len())),
            }
        }
        // As clipping leaves them: as long as each other.
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
    // Directions that hold a hundredth of a canary or less are noise.
    (0..count).for_each(|i| gram[(i, i)] += 0.01);
    let pull = DVector::from_iterator(count, pull.iter().map(|&x| f64::from(x)));
    let Some(inverse) = gram.cholesky().map(|found| found.inverse()) else {
        return Err(Error::Request("the canaries' gradients are not finite".into()));
    };
    let coefficients = &inverse * pull;
    Ok((0..count).map(|i| coefficients[i] / inverse[(i, i)].sqrt()).collect())
}
