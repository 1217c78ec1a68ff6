//! A whole model, and what is read from it.

mod halves;
mod training;

use super::folder::Config;
use super::layer::block::{self, Block};
use super::layer::embedding::Embeddings;
use super::layer::head::Head;
use super::layer::norm::Norm;
use super::layer::sanitiser::{Perturb, Sanitiser, Spot};
use super::parameters::Parameters;
use super::pass::Pass;
use super::{Error, Result};
use crate::data::Batch;
use crate::tensor::{Device, Host, Matrix};
pub use training::{Conditions, Forward};

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
    /// Where a record is bounded and perturbed, if anywhere.
    pub sanitiser: Option<Sanitiser>,
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
    device: Device,
}

/// Of a pass without a backward pass.
const NOTHING: (usize, bool) = (usize::MAX, false);

/// The place of each token in its own sequence.
fn positions(starts: &[usize]) -> Vec<u32> {
    starts.windows(2).flat_map(|w| 0..(w[1] - w[0]) as u32).collect()
}

impl Model {
    pub(crate) fn new(
        config: Config,
        network: Network,
        parameters: Parameters,
        fresh: Vec<String>,
    ) -> Self {
        Self { config, network, parameters, tuning: None, fresh, device: Device::Cpu }
    }

    /// Moves it to a device, or back to main memory.
    pub fn to_device(&mut self, device: &Device) -> Result<()> {
        self.parameters.to_device(device)?;
        self.device = device.clone();
        Ok(())
    }

    /// Where it computes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether the model has all of these tokens.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        let vocabulary = self.network.vocabulary;
        match tokens.iter().find(|&&token| token as usize >= vocabulary) {
            Some(token) => Err(Error::Request(format!(
                "token {token} is beyond the model's vocabulary of {vocabulary}; is the tokenizer \
                 that of the model?"
            ))),
            None => Ok(()),
        }
    }

    /// Whether the batch can be run at all: known tokens, sequences that are neither empty nor too
    /// long.
    pub fn check(&self, batch: &Batch) -> Result<()> {
        self.check_tokens(&batch.tokens)?;
        let network = &self.network;
        for window in batch.starts.windows(2) {
            let length = window[1] - window[0];
            if length == 0 {
                return Err(Error::Request(
                    "a sequence has no tokens; give every row some text".into(),
                ));
            }
            if length > network.most_positions {
                return Err(Error::Request(format!(
                    "a sequence has {length} tokens, but the model has positions for {}; lower \
                     max_tokens",
                    network.most_positions
                )));
            }
        }
        let segments = network.embeddings.segments.map(|table| self.parameters.value(table).rows());
        match (segments, batch.segments.iter().max()) {
            (Some(rows), Some(&largest)) if largest as usize >= rows => Err(Error::Request(
                format!("segment {largest} was asked for, but the model has {rows}"),
            )),
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
        Pass {
            parameters: &self.parameters,
            starts,
            positions,
            dropout_seed: seed,
            keep,
            panels: None,
        }
    }

    /// The hidden states after the embeddings, after each block, and after the last normalisation
    /// if there is one.
    pub fn hidden_states(&self, batch: &Batch) -> Result<Vec<Matrix>> {
        self.check(batch)?;
        let positions = positions(&batch.starts);
        let pass = self.pass(&batch.starts, &positions, None, false);
        let mut states =
            vec![self.network.embeddings.forward(&pass, &batch.tokens, &batch.segments)?.0];
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
        self.noisy_logits(batch, wanted, None)
    }

    /// The same with the sanitiser's noise.
    pub fn noisy_logits(
        &self,
        batch: &Batch,
        wanted: Option<&[u32]>,
        noise: Option<&dyn Perturb>,
    ) -> Result<Matrix> {
        self.check(batch)?;
        let positions = positions(&batch.starts);
        let pass = self.pass(&batch.starts, &positions, None, false);
        let x = self.below(&pass, &pass, batch, NOTHING)?.output;
        let Some(sanitiser) = &self.network.sanitiser else {
            if noise.is_some() {
                return Err(Error::Request(
                    "noise was asked for, but the model has no sanitiser".into(),
                ));
            }
            return Ok(self.above(&pass, x, wanted, NOTHING)?.logits);
        };
        let starts = sanitiser.starts(&batch.starts);
        let bounded = sanitiser.bounded(&pass, &x)?.0;
        let conditions = Conditions { noise, ..Conditions::default() };
        Ok(self.provide(bounded, &starts, wanted, &conditions, NOTHING)?.0.logits)
    }

    /// The weights with which the first or the last token of each sequence looks at its sequence in
    /// the last block: one row for each head.
    pub fn last_attention(&self, batch: &Batch, last_token: bool) -> Result<Vec<Host>> {
        self.check(batch)?;
        let positions = positions(&batch.starts);
        let pass = self.pass(&batch.starts, &positions, None, false);
        let Some((last, before)) = self.network.blocks.split_last() else { return Ok(Vec::new()) };
        let mut x = self.network.embeddings.forward(&pass, &batch.tokens, &batch.segments)?.0;
        for block in before {
            x = block.forward(&pass, &x)?.0;
        }
        if last.order == block::NormOrder::Before {
            x = last.attention_norm.forward(&pass, &x, None)?.0;
        }
        Ok(last.attention.weights_of_one(&pass, &x, last_token)?)
    }

    /// How many blocks are below the sanitiser; all of them if there is none.
    pub fn cut(&self) -> usize {
        match self.network.sanitiser.as_ref().map(|sanitiser| sanitiser.spot) {
            Some(Spot::After(blocks)) => blocks,
            Some(Spot::Output) | None => self.network.blocks.len(),
        }
    }

    /// What the owner of each sequence computes before noise is added: rows of bounded norm, and
    /// where each sequence's begin.
    pub fn bounded_rows(&self, batch: &Batch) -> Result<(Host, Vec<usize>)> {
        let Some(sanitiser) = &self.network.sanitiser else {
            return Err(Error::Request("the model has no sanitiser".into()));
        };
        self.check(batch)?;
        let positions = positions(&batch.starts);
        let pass = self.pass(&batch.starts, &positions, None, false);
        let x = self.below(&pass, &pass, batch, NOTHING)?.output;
        Ok((sanitiser.bounded(&pass, &x)?.0, sanitiser.starts(&batch.starts)))
    }
}
