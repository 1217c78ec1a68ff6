//! One forward pass over one batch: what every layer needs to know of it.

use super::parameters::{ParameterId, Parameters};
use crate::tensor::{Dropout, Panels};
use std::collections::HashMap;

/// The batch's layout and the mode of the pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// The model's parameters.
    pub parameters: &'a Parameters,
    /// Where each sequence begins among the packed tokens, and where the last one ends.
    pub starts: &'a [usize],
    /// The place of each token in its sequence.
    pub positions: &'a [u32],
    /// Names the dropout masks of this pass; none means that nothing is dropped.
    pub dropout_seed: Option<u64>,
    /// Whether layers keep what their backward pass needs.
    pub keep: bool,
    /// Weights of linear layers that were laid out for few rows.
    pub panels: Option<&'a HashMap<ParameterId, Panels>>,
}

impl<'a> Pass<'a> {
    /// Over rows that are no sequences, for layers that do not look at where sequences begin.
    pub fn plain(parameters: &'a Parameters) -> Self {
        Self {
            parameters,
            starts: &[],
            positions: &[],
            dropout_seed: None,
            keep: true,
            panels: None,
        }
    }

    /// The dropout of one place in the model, if it drops anything in this pass.
    pub fn dropout(&self, rate: f32, site: u64) -> Option<Dropout> {
        let seed = self.dropout_seed?;
        (rate > 0.0).then(|| Dropout { rate, seed }.fork(site))
    }
}
