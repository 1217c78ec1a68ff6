//! What the provider receives, and the provider's half: from perturbed embeddings to hidden states.

use super::rows::of_sequences;
use super::stack::{Stack, stack_backward, stack_forward};
use super::{Perturb, Sanitizer};
use crate::factor::Receiver;
use crate::layer::linear;
use crate::pass::Pass;
use rayon::prelude::*;
use undertone_tensor::{Host, Matrix, Result};

/// Activations saved for the backward pass of the provider's half.
#[derive(Debug)]
pub struct SavedAbove {
    calibration: Option<linear::Saved>,
    decoder: Stack,
}

impl Sanitizer {
    /// The perturbed embeddings that the provider receives: adds the noise, if any, and multiplies
    /// by √Ψ.
    pub fn released(&self, bounded: Host, starts: &[usize], noise: Option<&dyn Perturb>) -> Host {
        let mut rows = bounded;
        let columns = rows.columns();
        let received = noise.is_some_and(Perturb::is_in_the_rows);
        if received || (noise.is_none() && self.direction.is_none()) {
            return rows;
        }
        let parts = of_sequences(rows.values_mut(), starts, columns);
        parts.into_par_iter().enumerate().for_each(|(i, rows)| {
            if let Some(noise) = noise {
                noise.perturb(i, rows);
            }
            if let Some(direction) = &self.direction {
                for row in rows.chunks_exact_mut(columns.max(1)) {
                    row.iter_mut().zip(direction).for_each(|(y, d)| *y *= d);
                }
            }
        });
        rows
    }

    /// The provider's half: from released embeddings to hidden states. Perturbed embeddings are
    /// first calibrated.
    pub fn reconstruct(
        &self,
        pass: &Pass,
        released: Matrix,
        noisy: bool,
    ) -> Result<(Matrix, SavedAbove)> {
        let mut x = released;
        let mut calibration = None;
        if let Some(layer) = self.calibration.as_ref().filter(|_| noisy) {
            let (y, saved) = layer.forward(pass, &x)?;
            x = y;
            calibration = Some(saved);
        }
        let (y, decoder) = stack_forward(&self.decoder, self.activation, false, pass, x)?;
        Ok((y, SavedAbove { calibration, decoder }))
    }

    /// Backward pass of the provider's half; returns the gradient of the released embeddings.
    pub fn backward_above(
        &self,
        pass: &Pass,
        saved: SavedAbove,
        gradient: Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        let gradient = stack_backward(
            &self.decoder,
            self.activation,
            false,
            pass,
            saved.decoder,
            gradient,
            receiver,
        )?;
        match (&self.calibration, saved.calibration) {
            (Some(layer), Some(saved)) => layer.backward_alone(pass, saved, &gradient, receiver),
            _ => Ok(gradient),
        }
    }
}
