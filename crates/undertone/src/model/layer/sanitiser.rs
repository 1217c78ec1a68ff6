//! Sanitiser: the local DP layer. The data holder runs the model up to it and releases perturbed
//! embeddings; the provider runs the rest.
//!
//! ```text
//! data holder, pre(·):   hidden states ─▶ rows ─▶ centre ─▶ encode ─▶ (squash) ─▶ bound ─▶ + noise
//!                                                                                             │
//! provider, post(·):     hidden states ◀─ decode ◀─ (calibrate) ◀─ perturbed embeddings ◀─────┘
//! ```
//!
//! The rows of one sequence, divided by the noise direction √Ψ, have a Frobenius norm of at most C
//! whatever the text is: this bounds the sensitivity of the [mechanism](crate::method::local).
//! The norm is taken over real tokens alone; rows that pad a sequence to a fixed length are zero,
//! so they carry no signal and do not count towards the norm. With [`Rows::Padded`], as published,
//! the model has read padding, and its rows count.

use super::linear::{self, Linear};
use crate::model::factor::Receiver;
use crate::model::parameters::ParameterId;
use crate::model::pass::Pass;
use crate::tensor::{self, Activation, Host, Matrix, Output, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
pub use undertone_run::{Bounding, NoiseLayer};

/// Which hidden states of a sequence are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// One row per token; with `Some(n)`, padded or truncated to n rows, so that the sequence
    /// length is not released.
    Tokens(Option<usize>),
    /// One row per token. The sequence is padded to n tokens before the model reads it, no token
    /// attends to the padding, and the norm is taken over all n rows, as in DP-Forward's code. Rows
    /// of padding are not passed on: above the noise nothing attends to them either.
    Padded(usize),
    /// The first token's (`[CLS]`).
    First,
    /// The last token's.
    Last,
    /// The mean over all tokens.
    Mean,
}

impl Rows {
    /// Whether each token has a row of its own.
    pub fn are_of_tokens(self) -> bool {
        matches!(self, Self::Tokens(_) | Self::Padded(_))
    }
}

/// The sanitiser layer.
#[derive(Clone, Debug)]
pub struct Sanitiser {
    pub noise_layer: NoiseLayer,
    pub rows: Rows,
    /// The task head's dense layer and its activation, where the noise is after it.
    pub pooler: Option<(Linear, Activation)>,
    /// Vector subtracted from each row first, `[hidden]`.
    pub centre: Option<ParameterId>,
    /// Encoder from hidden states to released embeddings; empty to release hidden states.
    pub encoder: Vec<Linear>,
    /// Decoder from released embeddings to hidden states.
    pub decoder: Vec<Linear>,
    /// Activation between the layers of encoder and of decoder; none between those of linear ones.
    pub activation: Option<Activation>,
    /// Whether the encoder's last projection has it as well, before squash and norm bound.
    pub activates_code: bool,
    /// Upper end s of the range \[0, s\] that each coordinate is clamped to.
    pub squash: Option<f32>,
    pub bounding: Bounding,
    /// Norm bound C.
    pub norm: f32,
    /// √Ψ: relative noise std of each column; `None` for isotropic noise.
    pub direction: Option<Vec<f32>>,
    /// Linear estimate of the noise-free embedding from the perturbed one (linear MMSE).
    pub calibration: Option<Linear>,
}

/// Source of noise for the released embeddings of a batch.
pub trait Perturb: std::fmt::Debug + Sync {
    /// Adds noise to one sequence's embeddings.
    fn perturb(&self, sequence: usize, rows: &mut [f32]);
}

/// Activations saved for the backward pass of the data holder's half.
#[derive(Debug)]
pub struct SavedBelow {
    tokens: usize,
    starts: Vec<usize>,
    /// First released row of each sequence, and the number of released rows at the end.
    released: Vec<usize>,
    /// Input of the pooler's activation, and what its layer saved.
    pooler: Option<(Matrix, linear::Saved)>,
    encoder: Stack,
    /// Encoder output, before `squash`.
    encoded: Host,
    /// Norm of each sequence before bounding, after division by √Ψ.
    norms: Vec<f64>,
}

/// Activations saved for the backward pass of the provider's half.
#[derive(Debug)]
pub struct SavedAbove {
    calibration: Option<linear::Saved>,
    decoder: Stack,
}

/// Activations of a stack of linear layers, saved for its backward pass.
#[derive(Debug, Default)]
struct Stack {
    layers: Vec<linear::Saved>,
    /// Input of each activation function.
    before: Vec<Matrix>,
}

/// Forward pass of a stack: the activation stands between its layers and, if `at_end`, after the
/// last one.
fn stack_forward(
    layers: &[Linear],
    activation: Option<Activation>,
    at_end: bool,
    pass: &Pass,
    mut x: Matrix,
) -> Result<(Matrix, Stack)> {
    let mut stack = Stack::default();
    for (i, layer) in layers.iter().enumerate() {
        let (mut y, saved) = layer.forward(pass, &x)?;
        stack.layers.push(saved);
        if let Some(activation) = activation.filter(|_| at_end || i + 1 < layers.len()) {
            stack.before.push(y.clone());
            y = tensor::activate(activation, &y)?;
        }
        x = y;
    }
    Ok((x, stack))
}

fn stack_backward(
    layers: &[Linear],
    activation: Option<Activation>,
    at_end: bool,
    pass: &Pass,
    stack: Stack,
    mut gradient: Matrix,
    receiver: &mut dyn Receiver,
) -> Result<Matrix> {
    let mut before = stack.before;
    for (i, (layer, saved)) in layers.iter().zip(stack.layers).enumerate().rev() {
        if let Some(activation) = activation.filter(|_| at_end || i + 1 < layers.len())
            && let Some(x) = before.pop()
        {
            gradient = tensor::activate_backward(activation, &x, &gradient)?;
        }
        gradient = layer.backward_alone(pass, saved, &gradient, receiver)?;
    }
    Ok(gradient)
}

/// Splits packed rows into those of each sequence.
fn of_sequences<'a>(values: &'a mut [f32], starts: &[usize], columns: usize) -> Vec<&'a mut [f32]> {
    let mut rest = values;
    let mut parts = Vec::with_capacity(starts.len().saturating_sub(1));
    for window in starts.windows(2) {
        let (part, after) = rest.split_at_mut((window[1] - window[0]) * columns);
        parts.push(part);
        rest = after;
    }
    parts
}

/// Where each sequence would begin among the tokens without padding.
fn unpadded(pass: &Pass) -> Vec<usize> {
    let Some(visible) = pass.visible else { return pass.starts.to_vec() };
    let ends = visible.iter().scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

impl Sanitiser {
    /// Width of the released embeddings, given the hidden size.
    pub fn width(&self, hidden: usize) -> usize {
        self.encoder.last().map_or(hidden, |layer| layer.outputs)
    }

    /// All linear layers.
    pub fn layers(&self) -> impl Iterator<Item = &Linear> {
        self.encoder.iter().chain(&self.decoder).chain(&self.calibration)
    }

    /// Parameters of the data holder's half.
    pub fn parameters_below(&self) -> Vec<ParameterId> {
        let pooler = self.pooler.iter().map(|(layer, _)| layer);
        let layers = pooler.chain(&self.encoder);
        let layers = layers.flat_map(|layer| [Some(layer.weight), layer.bias]);
        layers.chain([self.centre]).flatten().collect()
    }

    /// Parameters of the provider's half.
    pub fn parameters_above(&self) -> Vec<ParameterId> {
        let layers = self.decoder.iter().chain(&self.calibration);
        layers.flat_map(|layer| [Some(layer.weight), layer.bias]).flatten().collect()
    }

    /// First released row of each sequence, and the number of released rows at the end, given
    /// those of its tokens without padding.
    pub fn starts(&self, starts: &[usize]) -> Vec<usize> {
        match self.rows {
            Rows::Tokens(None) | Rows::Padded(_) => starts.to_vec(),
            Rows::Tokens(Some(length)) => (0..starts.len()).map(|i| i * length).collect(),
            Rows::First | Rows::Last | Rows::Mean => (0..starts.len()).collect(),
        }
    }

    fn pick(&self, hidden: &Matrix, starts: &[usize]) -> Result<Matrix> {
        let windows = starts.windows(2);
        match self.rows {
            Rows::Tokens(_) | Rows::Padded(_) => Ok(hidden.clone()),
            Rows::First => {
                tensor::gather(hidden, &windows.map(|w| w[0] as u32).collect::<Vec<_>>())
            }
            Rows::Last => {
                tensor::gather(hidden, &windows.map(|w| (w[1] - 1) as u32).collect::<Vec<_>>())
            }
            Rows::Mean => {
                let device = hidden.device();
                let hidden = hidden.to_host()?;
                let columns = hidden.columns();
                let means = Host::build(starts.len() - 1, columns, |out| {
                    out.par_chunks_mut(columns.max(1)).zip(starts.par_windows(2)).for_each(
                        |(out, window)| {
                            let share = 1.0 / (window[1] - window[0]) as f32;
                            out.fill(0.0);
                            for row in window[0]..window[1] {
                                out.iter_mut()
                                    .zip(hidden.row(row))
                                    .for_each(|(sum, x)| *sum += share * x);
                            }
                        },
                    );
                });
                Matrix::Host(means).to_device(&device)
            }
        }
    }

    fn pick_backward(&self, gradient: &Matrix, starts: &[usize], tokens: usize) -> Result<Matrix> {
        let windows = starts.windows(2);
        match self.rows {
            Rows::Tokens(_) | Rows::Padded(_) => Ok(gradient.clone()),
            Rows::First => {
                tensor::scatter(gradient, &windows.map(|w| w[0] as u32).collect::<Vec<_>>(), tokens)
            }
            Rows::Last => tensor::scatter(
                gradient,
                &windows.map(|w| (w[1] - 1) as u32).collect::<Vec<_>>(),
                tokens,
            ),
            Rows::Mean => {
                let sequences: Vec<u32> = windows
                    .clone()
                    .enumerate()
                    .flat_map(|(i, w)| vec![i as u32; w[1] - w[0]])
                    .collect();
                let shares: Vec<f32> =
                    windows.flat_map(|w| vec![1.0 / (w[1] - w[0]) as f32; w[1] - w[0]]).collect();
                tensor::scale_rows(&tensor::gather(gradient, &sequences)?, &shares)
            }
        }
    }

    fn squashed(&self, x: f32) -> f32 {
        self.squash.map_or(x, |most| x.clamp(0.0, most))
    }

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
        if let Some(centre) = self.centre {
            let centre: Vec<f32> =
                pass.parameters.value(centre).to_vec()?.iter().map(|c| -c).collect();
            let mut shifted = Output::new(&x.device(), x.rows(), x.columns());
            shifted.fill_rows(
                0..centre.len(),
                &Matrix::from_vec(1, centre.len(), centre).to_device(&x.device())?,
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
                |(i, (out, norm))| {
                    out.fill(0.0);
                    let most = out.len() / columns.max(1);
                    let mut squares = 0.0;
                    for (row, out) in
                        (from[i]..from[i + 1]).take(most).zip(out.chunks_exact_mut(columns.max(1)))
                    {
                        for (j, (y, x)) in out.iter_mut().zip(encoded.row(row)).enumerate() {
                            *y = self.squashed(*x) / self.direction.as_ref().map_or(1.0, |d| d[j]);
                            squares += f64::from(*y).powi(2);
                        }
                    }
                    if let Rows::Padded(_) = self.rows {
                        for row in (from[i]..from[i + 1]).skip(most) {
                            for (j, x) in encoded.row(row).iter().enumerate() {
                                let d = self.direction.as_ref().map_or(1.0, |d| d[j]);
                                squares += f64::from(self.squashed(*x) / d).powi(2);
                            }
                        }
                    }
                    *norm = squares.sqrt();
                    let factor = self.factor(*norm);
                    out.iter_mut().for_each(|y| *y = if factor == 0.0 { 0.0 } else { *y * factor });
                },
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

    /// Factor that a sequence of this norm is multiplied by. A sequence whose norm is not finite
    /// becomes 0; a relative margin of 1e-6 absorbs rounding.
    fn factor(&self, norm: f64) -> f32 {
        let most = f64::from(self.norm) * (1.0 - 1e-6);
        match self.bounding {
            _ if !norm.is_finite() => 0.0,
            Bounding::Box => 1.0,
            Bounding::Clip if norm <= most => 1.0,
            Bounding::Normalise if norm < 1e-12 => 0.0,
            Bounding::Clip | Bounding::Normalise => (most / norm) as f32,
        }
    }

    /// The perturbed embeddings that the provider receives: adds the noise, if any, and multiplies
    /// by √Ψ.
    pub fn released(&self, bounded: Host, starts: &[usize], noise: Option<&dyn Perturb>) -> Host {
        let mut rows = bounded;
        let columns = rows.columns();
        if noise.is_none() && self.direction.is_none() {
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
    /// calibrated first.
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

    /// Backward pass of the data holder's half; returns the gradient of the hidden states. It
    /// depends on the unperturbed example, so it is only for training that may see it.
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
                let factor = self.factor(norm);
                let shortened = match self.bounding {
                    Bounding::Box => false,
                    Bounding::Clip => factor < 1.0,
                    Bounding::Normalise => true,
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
                            // Chain rule of the division by d before bounding and the
                            // multiplication by d after it: dy·d for y·d, and x/d for x.
                            let weighted = gradient.row(at)[j] * direction(j);
                            let x = f64::from(self.squashed(x) / direction(j));
                            *out = factor * (weighted - (x * along) as f32) / direction(j);
                        }
                    }
                }
                // Rows of padding are not passed on, but they count towards the norm.
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
