//! The passes below and above the sanitiser: what a record's owner computes, and what the provider
//! does with it.

use super::{Conditions, Model, NOTHING, positions};
use crate::data::Batch;
use crate::model::layer::sanitiser::{self, Spot};
use crate::model::layer::{block, embedding, head, norm};
use crate::model::parameters::ParameterId;
use crate::model::pass::Pass;
use crate::model::{Error, Result};
use crate::tensor::{Host, Matrix};
use std::ops::Range;

/// What the passes below and above the sanitiser give and keep.
pub(super) struct Below {
    pub output: Matrix,
    pub embeddings: Option<embedding::Saved>,
    pub blocks: Vec<block::Saved>,
    pub norm: Option<norm::Saved>,
}

pub(super) struct Above {
    pub logits: Matrix,
    pub blocks: Vec<block::Saved>,
    pub norm: Option<norm::Saved>,
    pub head: head::Saved,
}

impl Model {
    /// Whether the last normalisation is below the sanitiser.
    pub(super) fn norm_is_below(&self) -> bool {
        self.network.sanitiser.as_ref().is_some_and(|sanitiser| sanitiser.spot == Spot::Output)
    }

    /// The first block whose backward pass is needed, and whether the embeddings' is: nothing below
    /// the lowest trainable parameter.
    pub(super) fn lowest_trainable(&self) -> (usize, bool) {
        let trained = |id: ParameterId| self.parameters.is_trainable(id);
        if self.network.embeddings.parameters().any(trained) {
            return (0, true);
        }
        let blocks = &self.network.blocks;
        let first = blocks.iter().position(|block| block.parameters().into_iter().any(trained));
        let first = first.unwrap_or(blocks.len());
        // A sanitiser that learns needs the gradient of everything above it.
        let learns = self.network.sanitiser.as_ref().is_some_and(|layer| {
            layer.parameters_below().into_iter().chain(layer.parameters_above()).any(trained)
        });
        (if learns { first.min(self.cut()) } else { first }, false)
    }

    /// Whether anything that the owner holds is trained.
    pub(super) fn trains_below(&self) -> bool {
        let (first_block, embeddings_too) = self.lowest_trainable();
        let trained = |id: ParameterId| self.parameters.is_trainable(id);
        let norm = self.network.last_norm.as_ref().filter(|_| self.norm_is_below());
        let sanitiser = self.network.sanitiser.as_ref();
        embeddings_too
            || first_block < self.cut()
            || norm.is_some_and(|norm| trained(norm.weight))
            || sanitiser.is_some_and(|layer| layer.parameters_below().into_iter().any(trained))
    }

    /// Some of the blocks; states are kept from block `keep_from` on.
    fn climb(
        &self,
        (keeping, passing): (&Pass, &Pass),
        blocks: Range<usize>,
        mut x: Matrix,
        keep_from: usize,
    ) -> Result<(Matrix, Vec<block::Saved>)> {
        let mut kept = Vec::new();
        for (i, block) in self.network.blocks[blocks.clone()].iter().enumerate() {
            if blocks.start + i < keep_from {
                x = block.forward(passing, &x)?.0;
            } else {
                let (y, saved) = block.forward(keeping, &x)?;
                x = y;
                kept.push(saved);
            }
        }
        Ok((x, kept))
    }

    /// Embeddings and the blocks below the sanitiser; the last normalisation too, if it is below.
    pub(super) fn below(
        &self,
        keeping: &Pass,
        passing: &Pass,
        batch: &Batch,
        keep: (usize, bool),
    ) -> Result<Below> {
        let (keep_from, embeddings_too) = keep;
        let pass = if embeddings_too { keeping } else { passing };
        let (x, saved) = self.network.embeddings.forward(pass, &batch.tokens, &batch.segments)?;
        let (mut output, blocks) = self.climb((keeping, passing), 0..self.cut(), x, keep_from)?;
        let mut norm = None;
        if let Some(layer) = self.network.last_norm.as_ref().filter(|_| self.norm_is_below()) {
            let (y, saved) = layer.forward(keeping, &output, None)?;
            output = y;
            norm = Some(saved);
        }
        Ok(Below { output, embeddings: embeddings_too.then_some(saved), blocks, norm })
    }

    /// What is above the sanitiser: blocks, the last normalisation and the head.
    pub(super) fn above(
        &self,
        pass: &Pass,
        x: Matrix,
        wanted: Option<&[u32]>,
        keep: (usize, bool),
    ) -> Result<Above> {
        let passing = Pass { keep: false, ..*pass };
        let (mut x, blocks) =
            self.climb((pass, &passing), self.cut()..self.network.blocks.len(), x, keep.0)?;
        let mut norm = None;
        if let Some(layer) = self.network.last_norm.as_ref().filter(|_| !self.norm_is_below()) {
            let (y, saved) = layer.forward(pass, &x, None)?;
            x = y;
            norm = Some(saved);
        }
        let (logits, head) = self.network.head.forward(pass, &x, wanted)?;
        Ok(Above { logits, blocks, norm, head })
    }

    /// The provider's half, from bounded rows to logits: noise, the sanitiser's upper half, and
    /// what is above it.
    pub(super) fn provide(
        &self,
        bounded: Host,
        starts: &[usize],
        wanted: Option<&[u32]>,
        conditions: &Conditions,
        keep: (usize, bool),
    ) -> Result<(Above, sanitiser::SavedAbove, Vec<u32>)> {
        let Some(sanitiser) = &self.network.sanitiser else {
            return Err(Error::Request("the model has no sanitiser".into()));
        };
        let positions = positions(starts);
        let pass = self.pass(starts, &positions, conditions.dropout_seed, keep != NOTHING);
        let released = sanitiser.released(bounded, starts, conditions.noise);
        let released = Matrix::Host(released).to_device(&self.device)?;
        let (x, saved) = sanitiser.reconstruct(&pass, released, conditions.noise.is_some())?;
        let above = self.above(&pass, x, wanted, keep)?;
        Ok((above, saved, positions))
    }
}
