//! Memory required for training on a device.

use super::layer::block::Block;
use super::parameters::ParameterId;
use super::{Model, Origin};
use std::collections::HashSet;

/// Memory for training a model in bytes, excluding activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingMemory {
    /// Weights: f32, or fewer bits for frozen matrices.
    pub weights: u64,
    /// Gradient sums and Adam's two moments, in f32.
    pub states: u64,
}

/// How frozen matrices of the base model are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frozen {
    F32,
    Bf16,
    /// NF4 for the linear layers of the blocks, bf16 for the others.
    Nf4,
}

/// A matrix's gradient counts as small if it is smaller than the factors of this number of tokens,
/// which is typical of short texts.
const SMALLER_THAN_TOKENS: usize = 64;

/// Whether private training keeps each unit's gradient of a matrix with this shape, instead of its
/// factors. True for LoRA, adapters and heads, but not for the base model's layers.
///
/// The choice depends only on the shape, never on the batch. A clipping factor from a ghost norm,
/// whose bound includes rounding, differs from that of the kept gradient, so one unit's presence
/// must not determine how the gradients of the others are stored.
pub fn keeps_gradient([rows, columns]: [usize; 2]) -> bool {
    rows * columns <= SMALLER_THAN_TOKENS * (rows + columns)
}

/// The same for an embedding table, whose factors have one index per token instead of an input.
pub fn keeps_gradient_of_table([rows, _]: [usize; 2]) -> bool {
    rows <= SMALLER_THAN_TOKENS
}

impl Model {
    /// Maximum number of values of kept gradients per unit in private training.
    pub fn kept_per_unit(&self) -> usize {
        let trainable = self.parameters.iter().filter(|(_, parameter)| parameter.trainable);
        let small = trainable.filter(|(_, parameter)| keeps_gradient(parameter.value.shape()));
        small.map(|(_, parameter)| parameter.len()).sum()
    }

    /// Memory of the weights and of the optimizer state.
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
                // Four bits per value, one byte per block of 64 values, and eight bytes per group
                // of 256 blocks.
                Frozen::Nf4 if linear.contains(&id) => {
                    numbers.div_ceil(2) + numbers.div_ceil(64) + 8 * numbers.div_ceil(64 * 256)
                }
                Frozen::Bf16 | Frozen::Nf4 => 2 * numbers,
            };
            states += if parameter.trainable { 12 * numbers } else { 0 };
        }
        TrainingMemory { weights, states }
    }

    /// Number of values that a training step holds per token: inputs and outputs of each layer with
    /// their gradients, and intermediate values.
    pub fn numbers_per_token(&self) -> usize {
        let of_block = |block: &Block| -> usize {
            block.linear_layers().map(|layer| 2 * (layer.inputs + layer.outputs)).sum()
        };
        let of_blocks = self.network.blocks.iter().map(of_block);
        let of_blocks = if self.recompute {
            // The values of one block at a time, and the input of each block.
            let inputs = self.network.blocks.len() * self.network.head.out.inputs;
            2 * of_blocks.max().unwrap_or_default() + inputs
        } else {
            of_blocks.sum()
        };
        of_blocks + 3 * self.network.head.out.outputs
    }
}
