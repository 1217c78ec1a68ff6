//! The data holder's half: from hidden states to embeddings of bounded norm, and the backward pass.

use super::rows::{of_sequences, unpadded};
use super::stack::{Stack, stack_backward, stack_forward};
use super::{Bounding, Rows, Sanitizer};
use crate::factor::Receiver;
use crate::layer::linear;
use crate::pass::Pass;
use rayon::prelude::*;
use undertone_tensor::{self as tensor, Host, Matrix, Output, Result};

/// Activations saved for the backward pass of the data holder's half.
#[derive(Debug)]
pub struct SavedBelow {
    tokens: usize,
    starts: Vec<usize>,
    /// First released row of each sequence, followed by the total number of released rows.
    released: Vec<usize>,
    /// Input of the pooler's activation, and the saved state of its layer.
    pooler: Option<(Matrix, linear::Saved)>,
    encoder: Stack,
    /// Encoder output, before `squash`.
    encoded: Host,
    /// Norm of each sequence before bounding, after division by √Ψ.
    norms: Vec<f64>,
}

impl Sanitizer {
    /// The data holder's half: from hidden states to embeddings of bounded norm, divided by √Ψ so
    /// that isotropic noise can be added.
    pub fn bounded(&self, pass: &Pass, hidden: &Matrix) -> Result<(Host, SavedBelow)> {
        let mut x = self.pick(hidden, pass.starts)?;
        let mut pooler = None;
        if let Some((layer, activation)) = &self.pooler {
            let (before, saved) = layer.forward(pass, &x)?;
            x = tensor::activate(*activation, &before)?;
            pooler = Some((before, saved));
        }
        if let Some(center) = self.center {
            let center: Vec<f32> =
                pass.parameters.value(center).to_vec()?.iter().map(|c| -c).collect();
            let mut shifted = Output::new(&x.device(), x.rows(), x.columns());
            shifted.fill_rows(
                0..center.len(),
                &Matrix::from_vec(1, center.len(), center).to_device(&x.device())?,
            )?;
            shifted.add(&x)?;
            x = shifted.finish()?;
        }
        let (encoded, encoder) =
            stack_forward(&self.encoder, self.activation, self.activates_code, pass, x)?;
        let encoded = encoded.to_host()?;
        let columns = encoded.columns();
        let released = self.starts(&unpadded(pass));
        let from: Vec<usize> = match self.rows.are_of_tokens() {
            true => pass.starts.to_vec(),
            false => released.clone(),
        };
        let rows = released.last().copied().unwrap_or(0);
        let mut norms = vec![0.0; from.len() - 1];
        let bounded = Host::build(rows, columns, |out| {
            let parts = of_sequences(out, &released, columns);
            parts.into_par_iter().zip(norms.par_iter_mut()).enumerate().for_each(
                |(i, (out, norm))| *norm = self.bound(&encoded, from[i]..from[i + 1], out),
            );
        });
        let saved = SavedBelow {
            tokens: hidden.rows(),
            starts: pass.starts.to_vec(),
            released,
            pooler,
            encoder,
            encoded,
            norms,
        };
        Ok((bounded, saved))
    }

    /// Backward pass of the data holder's half; returns the gradient of the hidden states. It
    /// depends on the unperturbed example, so it may only be used in training that has access to
    /// it.
    pub fn backward_below(
        &self,
        pass: &Pass,
        saved: SavedBelow,
        gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        let SavedBelow { tokens, starts, released, pooler, encoder, encoded, norms } = saved;
        let device = gradient.device();
        let gradient = gradient.to_host()?;
        let columns = encoded.columns();
        let from = if self.rows.are_of_tokens() { starts.clone() } else { released.clone() };
        let direction = |j: usize| self.direction.as_ref().map_or(1.0, |d| d[j]);
        let through = Host::build(encoded.rows(), columns, |out| {
            let parts = of_sequences(out, &from, columns);
            parts.into_par_iter().zip(&norms).enumerate().for_each(|(i, (out, &norm))| {
                out.fill(0.0);
                let most = released[i + 1] - released[i];
                let factor = self.factor(norm) as f32;
                let shortened = match self.bounding {
                    Bounding::Box => false,
                    Bounding::Clip => factor < 1.0,
                    Bounding::Normalize => true,
                };
                let rows = || (from[i]..from[i + 1]).zip(released[i]..).take(most);
                // y = c x/‖x‖ has the gradient c/‖x‖ (dy − x ⟨x, dy⟩/‖x‖²).
                let mut along = 0.0;
                if shortened && norm > 0.0 {
                    for (row, at) in rows() {
                        // ⟨x/d, dy·d⟩ = ⟨x, dy⟩: the direction d = √Ψ cancels.
                        for (x, dy) in encoded.row(row).iter().zip(gradient.row(at)) {
                            along += f64::from(self.squashed(*x) * dy);
                        }
                    }
                    along /= norm * norm;
                }
                let mut out = out.chunks_exact_mut(columns.max(1));
                for ((row, at), out) in rows().zip(&mut out) {
                    for (j, out) in out.iter_mut().enumerate() {
                        let x = encoded.row(row)[j];
                        let inside = self.squash.is_none_or(|most| x > 0.0 && x < most);
                        if inside && factor > 0.0 {
                            // Chain rule for the division by d before bounding and the
                            // multiplication by d after it: dy·d for y·d, and x/d for x.
                            let weighted = gradient.row(at)[j] * direction(j);
                            let x = f64::from(self.squashed(x) / direction(j));
                            *out = factor * (weighted - (x * along) as f32) / direction(j);
                        }
                    }
                }
                // Padding rows are not passed on, but they count toward the norm.
                if let Rows::Padded(_) = self.rows {
                    for (row, out) in (from[i]..from[i + 1]).skip(most).zip(out) {
                        for (j, out) in out.iter_mut().enumerate() {
                            let x = encoded.row(row)[j];
                            if self.squash.is_none_or(|most| x > 0.0 && x < most) {
                                let x = f64::from(self.squashed(x) / direction(j));
                                *out = -factor * (x * along) as f32 / direction(j);
                            }
                        }
                    }
                }
            });
        });
        let through = Matrix::Host(through).to_device(&device)?;
        let gradient = stack_backward(
            &self.encoder,
            self.activation,
            self.activates_code,
            pass,
            encoder,
            through,
            receiver,
        )?;
        let gradient = match (&self.pooler, pooler) {
            (Some((layer, activation)), Some((before, saved))) => {
                let gradient = tensor::activate_backward(*activation, &before, &gradient)?;
                layer.backward_alone(pass, saved, &gradient, receiver)?
            }
            _ => gradient,
        };
        self.pick_backward(&gradient, &starts, tokens)
    }
}
