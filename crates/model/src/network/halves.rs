//! Forward passes below the sanitizer (the data holder's half) and above it (the provider's half).

use super::{ForwardOptions, Model, NO_BACKWARD, positions};
use crate::layer::sanitizer::{self, NoiseLayer, Received};
use crate::layer::{block, embedding, head, norm};
use crate::parameters::ParameterId;
use crate::pass::Pass;
use crate::{Error, Result};
use std::ops::Range;
use undertone_data::Batch;
use undertone_tensor::{Host, Matrix};

/// The state from which a block's backward pass starts.
#[derive(Debug)]
pub(super) enum Kept {
    Activations(Box<block::Saved>),
    /// The block's input, from which its activations are recomputed.
    Input(Matrix),
}

/// Output and saved activations of the forward pass below the sanitizer.
pub(super) struct Below {
    pub output: Matrix,
    pub embeddings: Option<embedding::Saved>,
    pub blocks: Vec<Kept>,
    pub norm: Option<norm::Saved>,
}

/// Output and saved activations of the forward pass above the sanitizer.
pub(super) struct Above {
    pub logits: Matrix,
    pub blocks: Vec<Kept>,
    pub norm: Option<norm::Saved>,
    pub head: head::Saved,
}

impl Model {
    /// Whether the final normalization is below the sanitizer.
    pub(super) fn norm_is_below(&self) -> bool {
        self.network
            .sanitizer
            .as_ref()
            .is_some_and(|sanitizer| !matches!(sanitizer.noise_layer, NoiseLayer::After(_)))
    }

    /// The first block that needs a backward pass, and whether the embeddings need one: the
    /// backward pass stops at the lowest trainable parameter.
    pub(super) fn lowest_trainable(&self) -> (usize, bool) {
        let trained = |id: ParameterId| self.parameters.is_trainable(id);
        if self.network.embeddings.parameters().any(trained) {
            return (0, true);
        }
        let blocks = &self.network.blocks;
        let first = blocks.iter().position(|block| block.parameters().into_iter().any(trained));
        let first = first.unwrap_or(blocks.len());
        // A trainable sanitizer needs the backward pass of everything above it.
        let sanitizer_is_trainable = self.network.sanitizer.as_ref().is_some_and(|layer| {
            layer.parameters_below().into_iter().chain(layer.parameters_above()).any(trained)
        });
        (if sanitizer_is_trainable { first.min(self.cut()) } else { first }, false)
    }

    /// Whether any parameter of the data holder's half is trainable.
    pub(super) fn trains_below(&self) -> bool {
        let (first_block, embeddings_too) = self.lowest_trainable();
        let trained = |id: ParameterId| self.parameters.is_trainable(id);
        let norm = self.network.last_norm.as_ref().filter(|_| self.norm_is_below());
        let sanitizer = self.network.sanitizer.as_ref();
        embeddings_too
            || first_block < self.cut()
            || norm.is_some_and(|norm| trained(norm.weight))
            || sanitizer.is_some_and(|layer| layer.parameters_below().into_iter().any(trained))
    }

    /// Forward pass of a range of blocks; activations are saved from block `keep_from` on.
    fn forward_blocks(
        &self,
        (keeping, passing): (&Pass, &Pass),
        blocks: Range<usize>,
        mut x: Matrix,
        keep_from: usize,
    ) -> Result<(Matrix, Vec<Kept>)> {
        let mut kept = Vec::new();
        for (i, block) in self.network.blocks[blocks.clone()].iter().enumerate() {
            if blocks.start + i < keep_from {
                x = block.forward(passing, &x)?.0;
            } else if self.recompute {
                let y = block.forward(passing, &x)?.0;
                kept.push(Kept::Input(std::mem::replace(&mut x, y)));
            } else {
                let (y, saved) = block.forward(keeping, &x)?;
                x = y;
                kept.push(Kept::Activations(Box::new(saved)));
            }
        }
        Ok((x, kept))
    }

    /// Forward pass of the embeddings, the blocks below the sanitizer, and the final normalization
    /// if it is below.
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
        let (mut output, blocks) =
            self.forward_blocks((keeping, passing), 0..self.cut(), x, keep_from)?;
        let mut norm = None;
        if let Some(layer) = self.network.last_norm.as_ref().filter(|_| self.norm_is_below()) {
            let (y, saved) = layer.forward(keeping, &output, None)?;
            output = y;
            norm = Some(saved);
        }
        Ok(Below { output, embeddings: embeddings_too.then_some(saved), blocks, norm })
    }

    /// Forward pass of the blocks above the sanitizer, the final normalization and the task head.
    pub(super) fn above(
        &self,
        pass: &Pass,
        x: Matrix,
        wanted: Option<&[u32]>,
        keep: (usize, bool),
    ) -> Result<Above> {
        let passing = Pass { keep: false, ..*pass };
        let (mut x, blocks) = self.forward_blocks(
            (pass, &passing),
            self.cut()..self.network.blocks.len(),
            x,
            keep.0,
        )?;
        let mut norm = None;
        if let Some(layer) = self.network.last_norm.as_ref().filter(|_| !self.norm_is_below()) {
            let (y, saved) = layer.forward(pass, &x, None)?;
            x = y;
            norm = Some(saved);
        }
        let (logits, head) = self.network.head.forward(pass, &x, wanted)?;
        Ok(Above { logits, blocks, norm, head })
    }

    /// From norm-bounded embeddings to logits: adds the noise, then runs the provider's half.
    pub(super) fn forward_bounded(
        &self,
        bounded: Host,
        starts: &[usize],
        wanted: Option<&[u32]>,
        options: &ForwardOptions,
        keep: (usize, bool),
    ) -> Result<(Above, sanitizer::SavedAbove, Vec<u32>)> {
        let Some(sanitizer) = &self.network.sanitizer else {
            return Err(Error::Request("the model has no sanitizer".into()));
        };
        let positions = positions(starts);
        let pass = self.pass(starts, &positions, options.dropout_seed, keep != NO_BACKWARD);
        let released = sanitizer.released(bounded, starts, options.noise);
        let released = Matrix::Host(released).to_device(&self.device)?;
        let (x, saved) = sanitizer.reconstruct(&pass, released, options.noise.is_some())?;
        let above = self.above(&pass, x, wanted, keep)?;
        Ok((above, saved, positions))
    }

    /// Logits `[sequences, classes]` for received perturbed embeddings, using only the provider's
    /// half. `released` contains the rows of all sequences, one sequence after another.
    pub fn logits_of_released(&self, released: Host) -> Result<Matrix> {
        let Some(sanitizer) = &self.network.sanitizer else {
            return Err(Error::Request("the model has no sanitizer".into()));
        };
        let Some(rows) = sanitizer.rows.in_every_release() else {
            return Err(Error::Request("the number of released rows is not fixed".into()));
        };
        let starts: Vec<usize> = (0..=released.rows() / rows).map(|i| i * rows).collect();
        let options = ForwardOptions { noise: Some(&Received), ..ForwardOptions::default() };
        Ok(self.forward_bounded(released, &starts, None, &options, NO_BACKWARD)?.0.logits)
    }
}
