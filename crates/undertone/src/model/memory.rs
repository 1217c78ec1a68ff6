//! What training takes of a device's memory.

use super::layer::block::Block;
use super::{Model, Origin};

/// Bytes that training a model takes, apart from activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingMemory {
    /// Weights: f32, or bf16 for frozen matrices that are rounded.
    pub weights: u64,
    /// Sums of gradients and the two moments of Adam, f32.
    pub states: u64,
}

impl Model {
    /// Memory of the weights and of what the optimiser keeps. `rounds_frozen` says that frozen
    /// matrices of the base model are kept in bf16.
    pub fn training_memory(&self, rounds_frozen: bool) -> TrainingMemory {
        let (mut weights, mut states) = (0, 0);
        for (_, parameter) in self.parameters.iter() {
            let numbers = parameter.len() as u64;
            let frozen = !parameter.trainable && parameter.origin == Origin::Base;
            let rounded = rounds_frozen && frozen && parameter.shape.len() > 1;
            weights += if rounded { 2 * numbers } else { 4 * numbers };
            states += if parameter.trainable { 12 * numbers } else { 0 };
        }
        TrainingMemory { weights, states }
    }

    /// Numbers that a training step holds for each token: inputs and outputs of each layer with
    /// their gradients, and what lies between them.
    pub fn numbers_per_token(&self) -> usize {
        let of_block = |block: &Block| -> usize {
            block.linear_layers().map(|layer| 2 * (layer.inputs + layer.outputs)).sum()
        };
        let of_blocks = self.network.blocks.iter().map(of_block);
        let of_blocks = if self.recompute {
            // Those of one block at a time, and the input of each.
            let inputs = self.network.blocks.len() * self.network.head.out.inputs;
            2 * of_blocks.max().unwrap_or_default() + inputs
        } else {
            of_blocks.sum()
        };
        of_blocks + 3 * self.network.head.out.outputs
    }
}
