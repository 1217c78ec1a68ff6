//! Sanitizer: the local-DP layer. The data holder runs the model up to this layer and releases
//! perturbed embeddings; the provider runs the rest.
//!
//! ```text
//! data holder, pre(·):   hidden states ─▶ rows ─▶ center ─▶ encode ─▶ (squash) ─▶ bound ─▶ + noise
//!                                                                                             │
//! provider, post(·):     hidden states ◀─ decode ◀─ (calibrate) ◀─ perturbed embeddings ◀─────┘
//! ```
//!
//! The rows of one sequence, divided by the noise direction √Ψ, have a Frobenius norm of at most C
//! for any text, which bounds the sensitivity of the local-DP mechanism. The norm is taken over
//! real tokens only; rows that pad a sequence to a fixed length are zero, so they carry no signal
//! and do not count toward the norm. With [`Rows::Padded`], as published, the model has read
//! padding, and the padding rows count.

mod bound;
mod owner;
mod provider;
mod rows;
mod stack;

pub use owner::SavedBelow;
pub use provider::SavedAbove;
pub use rows::Rows;
pub use undertone_settings::{Bounding, NoiseLayer};

use super::linear::Linear;
use crate::parameters::ParameterId;
use undertone_tensor::Activation;

/// The sanitizer layer.
#[derive(Clone, Debug)]
pub struct Sanitizer {
    pub noise_layer: NoiseLayer,
    pub rows: Rows,
    /// The task head's dense layer and its activation, if noise is added after it.
    pub pooler: Option<(Linear, Activation)>,
    /// Vector first subtracted from each row, `[hidden]`.
    pub center: Option<ParameterId>,
    /// Encoder from hidden states to released embeddings; empty to release hidden states.
    pub encoder: Vec<Linear>,
    /// Decoder from released embeddings to hidden states.
    pub decoder: Vec<Linear>,
    /// Activation between the layers of the encoder and of the decoder; `None` if they are linear.
    pub activation: Option<Activation>,
    /// Whether the activation also follows the encoder's last projection, before squash and norm
    /// bound.
    pub activates_code: bool,
    /// Upper end s of the range \[0, s\] to which each coordinate is clamped.
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

    /// Whether the rows were released by someone else and already include noise and √Ψ.
    fn is_in_the_rows(&self) -> bool {
        false
    }
}

/// The noise of rows received by the provider, which already include it.
#[derive(Clone, Copy, Debug)]
pub struct Received;

impl Perturb for Received {
    fn perturb(&self, _: usize, _: &mut [f32]) {}

    fn is_in_the_rows(&self) -> bool {
        true
    }
}

impl Sanitizer {
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
        layers.chain([self.center]).flatten().collect()
    }

    /// Parameters of the provider's half.
    pub fn parameters_above(&self) -> Vec<ParameterId> {
        let layers = self.decoder.iter().chain(&self.calibration);
        layers.flat_map(|layer| [Some(layer.weight), layer.bias]).flatten().collect()
    }
}
