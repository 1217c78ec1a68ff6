//! A whole model and its passes.

use super::factor::Receiver;
use super::folder::Config;
use super::layer::block::{self, Block};
use super::layer::embedding::{self, Embeddings};
use super::layer::head::{self, Head};
use super::layer::norm::{self, Norm};
use super::objective::{Objective, Weighting};
use super::parameters::{ParameterId, Parameters};
use super::pass::Pass;
use super::{Error, Result};
use crate::data::Batch;
use crate::tensor::{self, Matrix, Place};

/// The layers of a model.
#[derive(Clone, Debug)]
pub struct Network {
    /// The bottom.
    pub embeddings: Embeddings,
    /// The blocks, first to last.
    pub blocks: Vec<Block>,
    /// The normalisation after the last block.
    pub last_norm: Option<Norm>,
    /// The top.
    pub head: Head,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// Longest sequence that the positions allow.
    pub most_positions: usize,
}

/// A model: its configuration, its layers and its parameters.
#[derive(Clone, Debug)]
pub struct Model {
    /// As in config.json.
    pub config: Config,
    /// The layers.
    pub network: Network,
    /// What they compute with.
    pub parameters: Parameters,
    /// How it is tuned; `None` until it was made ready for training.
    pub tuning: Option<super::tuning::Tuning>,
    /// Parameters that the weights did not have and that were drawn at random.
    pub fresh: Vec<String>,
    place: Place,
}

/// A forward pass whose backward pass can follow.
#[derive(Debug)]
pub struct Forward {
    /// One row for each sequence or token.
    pub logits: Matrix,
    positions: Vec<u32>,
    starts: Vec<usize>,
    dropout_seed: Option<u64>,
    embeddings: Option<embedding::Saved>,
    /// Kept states of the blocks from `first_block` on.
    blocks: Vec<block::Saved>,
    first_block: usize,
    last_norm: Option<norm::Saved>,
    head: head::Saved,
}

/// The place of each token in its own sequence.
fn positions(starts: &[usize]) -> Vec<u32> {
    starts.windows(2).flat_map(|w| 0..(w[1] - w[0]) as u32).collect()
}

impl Model {
    pub(crate) fn new(config: Config, network: Network, parameters: Parameters, fresh: Vec<String>) -> Self {
        Self { config, network, parameters, tuning: None, fresh, place: Place::Host }
    }

    /// Moves it to a device, or back to main memory.
    pub fn to_place(&mut self, place: &Place) -> Result<()> {
        self.parameters.to_place(place)?;
        self.place = place.clone();
        Ok(())
    }

    /// Where it computes.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether the batch can be run at all: known tokens, sequences that are neither empty nor too long.
    pub fn check(&self, batch: &Batch) -> Result<()> {
        let network = &self.network;
        if let Some(token) = batch.tokens.iter().find(|&&token| token as usize >= network.vocabulary) {
            return Err(Error::Request(format!(
                "token {token} is beyond the model's vocabulary of {}; is the tokenizer that of the model?",
                network.vocabulary
            )));
        }
        for window in batch.starts.windows(2) {
            let length = window[1] - window[0];
            if length == 0 {
                return Err(Error::Request("a sequence has no tokens; give every row some text".into()));
            }
            if length > network.most_positions {
                return Err(Error::Request(format!(
                    "a sequence has {length} tokens, but the model has positions for {}; lower max_tokens",
                    network.most_positions
                )));
            }
        }
        let segments = network.embeddings.segments.map(|table| self.parameters.value(table).rows());
        match (segments, batch.segments.iter().max()) {
            (Some(rows), Some(&largest)) if largest as usize >= rows => {
                Err(Error::Request(format!("segment {largest} was asked for, but the model has {rows}")))
            }
            _ => Ok(()),
        }
    }

    fn pass<'a>(
        &'a self,
        starts: &'a [usize],
        positions: &'a [u32],
        seed: Option<u64>,
        keep: bool,
    ) -> Pass<'a> {
        Pass { parameters: &self.parameters, starts, positions, dropout_seed: seed, keep, panels: None }
    }

    /// The hidden states after the embeddings, after each block, and after the last normalisation if there is one.
    pub fn hidden_states(&self, batch: &Batch) -> Result<Vec<Matrix>> {
        self.check(batch)?;
        let positions = positions(&batch.starts);
        let pass = self.pass(&batch.starts, &positions, None, false);
        let mut states = vec![self.network.embeddings.forward(&pass, &batch.tokens, &batch.segments)?.0];
        for block in &self.network.blocks {
            let next = block.forward(&pass, &states[states.len() - 1])?.0;
            states.push(next);
        }
        if let Some(norm) = &self.network.last_norm {
            let next = norm.forward(&pass, &states[states.len() - 1], None)?.0;
            states.push(next);
        }
        Ok(states)
    }

    /// The logits: one row for each sequence, or for each token (of `wanted`, if given).
    pub fn logits(&self, batch: &Batch, wanted: Option<&[u32]>) -> Result<Matrix> {
        self.check(batch)?;
        let positions = positions(&batch.starts);
        let pass = self.pass(&batch.starts, &positions, None, false);
        let mut x = self.network.embeddings.forward(&pass, &batch.tokens, &batch.segments)?.0;
        for block in &self.network.blocks {
            x = block.forward(&pass, &x)?.0;
        }
        if let Some(norm) = &self.network.last_norm {
            x = norm.forward(&pass, &x, None)?.0;
        }
        Ok(self.network.head.forward(&pass, &x, wanted)?.0)
    }

    /// The first block whose backward pass is needed, and whether the embeddings' is: nothing below the lowest trainable parameter.
    fn lowest_trainable(&self) -> (usize, bool) {
        let trained = |id: ParameterId| self.parameters.is_trainable(id);
        if self.network.embeddings.parameters().any(trained) {
            return (0, true);
        }
        let blocks = &self.network.blocks;
        let first = blocks.iter().position(|block| block.parameters().into_iter().any(trained));
        (first.unwrap_or(blocks.len()), false)
    }

    /// A forward pass that keeps what the backward pass needs. `dropout_seed` names the dropout masks; none drops nothing.
    pub fn forward(
        &self,
        batch: &Batch,
        wanted: Option<&[u32]>,
        dropout_seed: Option<u64>,
    ) -> Result<Forward> {
        self.check(batch)?;
        let positions = positions(&batch.starts);
        let (first_block, embeddings_too) = self.lowest_trainable();
        let keeping = self.pass(&batch.starts, &positions, dropout_seed, true);
        let passing = Pass { keep: false, ..keeping };
        let (mut x, saved) = self.network.embeddings.forward(
            if embeddings_too { &keeping } else { &passing },
            &batch.tokens,
            &batch.segments,
        )?;
        let embeddings = embeddings_too.then_some(saved);
        let mut blocks = Vec::new();
        for (i, block) in self.network.blocks.iter().enumerate() {
            if i < first_block {
                x = block.forward(&passing, &x)?.0;
            } else {
                let (y, saved) = block.forward(&keeping, &x)?;
                x = y;
                blocks.push(saved);
            }
        }
        let mut last_norm = None;
        if let Some(norm) = &self.network.last_norm {
            let (y, saved) = norm.forward(&keeping, &x, None)?;
            x = y;
            last_norm = Some(saved);
        }
        let (logits, head) = self.network.head.forward(&keeping, &x, wanted)?;
        let starts = batch.starts.clone();
        Ok(Forward {
            logits,
            positions,
            starts,
            dropout_seed,
            embeddings,
            blocks,
            first_block,
            last_norm,
            head,
        })
    }

    /// The backward pass: hands out the factors of every trainable parameter's gradient.
    pub fn backward(
        &self,
        forward: Forward,
        logits_gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        let Forward { logits, positions, starts, dropout_seed, embeddings, blocks, first_block, .. } =
            forward;
        drop(logits);
        let pass = self.pass(&starts, &positions, dropout_seed, true);
        let network = &self.network;
        let mut gradient = network.head.backward(&pass, forward.head, logits_gradient, receiver)?;
        let norm_is_trained =
            network.last_norm.as_ref().is_some_and(|norm| self.parameters.is_trainable(norm.weight));
        if first_block == network.blocks.len() && embeddings.is_none() && !norm_is_trained {
            return Ok(());
        }
        if let (Some(norm), Some(saved)) = (&network.last_norm, forward.last_norm) {
            gradient = norm.backward(&pass, saved, &gradient, receiver)?;
        }
        let kept = network.blocks[first_block..].iter().zip(blocks).enumerate().rev();
        for (i, (block, saved)) in kept {
            let wanted = i > 0 || embeddings.is_some();
            match block.backward(&pass, saved, gradient, wanted, receiver)? {
                Some(next) => gradient = next,
                None => return Ok(()),
            }
        }
        if let Some(saved) = embeddings {
            network.embeddings.backward(&pass, saved, gradient, receiver)?;
        }
        Ok(())
    }

    /// The loss of each example of the batch: the mean over what it predicts.
    pub fn losses(&self, batch: &Batch) -> Result<Vec<f32>> {
        let objective = Objective::of(batch, self.network.head.purpose)?;
        let logits = self.logits(batch, Some(&objective.rows))?;
        objective.check_targets(logits.columns())?;
        let (losses, _) = tensor::cross_entropy(&logits, &objective.targets, None)?;
        Ok(objective.mean_by_example(&losses, batch.sequences()))
    }

    /// Loss of each example, and the backward pass of their weighted sum.
    pub fn train(
        &self,
        batch: &Batch,
        weighting: Weighting,
        dropout_seed: Option<u64>,
        receiver: &mut dyn Receiver,
    ) -> Result<Vec<f32>> {
        let objective = Objective::of(batch, self.network.head.purpose)?;
        let forward = self.forward(batch, Some(&objective.rows), dropout_seed)?;
        objective.check_targets(forward.logits.columns())?;
        let weights = objective.weights(weighting, &batch.units);
        let (losses, gradient) = tensor::cross_entropy(&forward.logits, &objective.targets, Some(&weights))?;
        if let Some(gradient) = gradient {
            self.backward(forward, &gradient, receiver)?;
        }
        Ok(objective.mean_by_example(&losses, batch.sequences()))
    }
}
