//! A matrix under construction.

use super::parallel;
use super::view::Update;
use crate::Host;
use crate::backend::Block;
use std::ops::Range;

/// A matrix under construction. A bias is not written to its block but kept for the next product,
/// which starts with it, so that the block is written only once.
pub struct Draft {
    matrix: Host,
    biases: Vec<(Range<usize>, Host)>,
}

impl Draft {
    pub fn new(matrix: Host) -> Self {
        Self { matrix, biases: Vec::new() }
    }

    pub fn columns(&self) -> usize {
        self.matrix.columns()
    }

    pub fn values_mut(&mut self) -> &mut [f32] {
        self.matrix.values_mut()
    }

    /// Sets the bias of an unwritten block.
    pub fn set_bias(&mut self, block: &Block, row: &Host) {
        self.biases.push((block.columns.clone(), row.clone()));
    }

    /// Takes the bias with which the next product of a block must start.
    pub fn take_bias(&mut self, block: &Block) -> Option<Host> {
        let place = self.biases.iter().position(|(columns, _)| *columns == block.columns)?;
        Some(self.biases.swap_remove(place).1)
    }

    /// Writes the bias of a block, so that something other than a product can be added.
    pub fn write_bias(&mut self, block: &Block) {
        if let Some(row) = self.take_bias(block) {
            self.write(&block.columns, &row);
        }
    }

    /// The finished matrix.
    pub fn finish(mut self) -> Host {
        for (columns, row) in std::mem::take(&mut self.biases) {
            self.write(&columns, &row);
        }
        self.matrix
    }

    fn write(&mut self, columns: &Range<usize>, row: &Host) {
        let (stride, row) = (self.columns(), row.dense());
        let write = |_: usize, out: &mut [f32]| {
            let out = out.get_mut(columns.start..).unwrap_or_default();
            Update::Bias(&row).prepare(out, stride, [usize::MAX, columns.len()]);
        };
        parallel::rows(self.values_mut(), stride, write);
    }
}
