//! Context of one forward or backward pass over a batch, shared by all layers.

use super::parameters::{ParameterId, Parameters};
use std::collections::HashMap;
use undertone_tensor::{Dropout, Panels};

/// Layout of the packed batch and mode of the pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    pub parameters: &'a Parameters,
    /// First token of each sequence among the packed tokens, followed by the total number of
    /// tokens.
    pub starts: &'a [usize],
    /// Position of each token in its sequence.
    pub positions: &'a [u32],
    /// Number of tokens in each sequence that are not padding. Padding is at the end, and no token
    /// attends to it. `None` if there is no padding.
    pub visible: Option<&'a [usize]>,
    /// Seed of this pass's dropout masks; `None` disables dropout.
    pub dropout_seed: Option<u64>,
    /// Whether layers save activations for the backward pass.
    pub keep: bool,
    /// Weights of linear layers, packed for matrix products with few rows (generation).
    pub panels: Option<&'a HashMap<ParameterId, Panels>>,
}

impl<'a> Pass<'a> {
    /// A pass without sequence layout, for layers that treat rows independently.
    pub fn plain(parameters: &'a Parameters) -> Self {
        Self {
            parameters,
            starts: &[],
            positions: &[],
            visible: None,
            dropout_seed: None,
            keep: true,
            panels: None,
        }
    }

    /// Dropout of the layer with index `site`, if dropout is active in this pass.
    pub fn dropout(&self, rate: f32, site: u64) -> Option<Dropout> {
        let seed = self.dropout_seed?;
        (rate > 0.0).then(|| Dropout { rate, seed }.fork(site))
    }
}
