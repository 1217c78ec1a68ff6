//! What training takes of a device's memory.

use super::layer::block::Block;
use super::parameters::ParameterId;
use super::{Model, Origin};
use std::collections::HashSet;

/// Bytes that training a model takes, apart from activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingMemory {
    /// Weights: f32, or fewer bits for frozen matrices.
    pub weights: u64,
    /// Sums of gradients and the two moments of Adam, f32.
    pub states: u64,
}

/// How frozen matrices of the base model are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frozen {
    F32,
    Bf16,
    /// NF4 for the linear layers of blocks, bf16 for the others.
    Nf4,
}

impl Model {
    /// Memory of the weights and of what the optimiser keeps.
    pub fn training_memory(&self, frozen: Frozen) -> TrainingMemory {
        let blocks = self.network.blocks.iter().flat_map(|block| block.linear_layers());
        let linear: HashSet<ParameterId> = blocks.map(|layer| layer.weight).collect();
        let (mut weights, mut states) = (0, 0);
        for (id, parameter) in self.parameters.iter() {
            let numbers = parameter.len() as u64;
            let leaves = !parameter.trainable && parameter.origin == Origin::Base;
            weights += match frozen {
                _ if !leaves || parameter.shape.len() < 2 => 4 * numbers,
                Frozen::F32 => 4 * numbers,
                // Four bits, a byte for each 64 numbers, and eight for each 256 of these.
                Frozen::Nf4 if linear.contains(&id) => {
                    numbers.div_ceil(2) + numbers.div_ceil(64) + 8 * numbers.div_ceil(64 * 256)
                }
                Frozen::Bf16 | Frozen::Nf4 => 2 * numbers,
            };
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
