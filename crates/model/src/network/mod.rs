//! The whole model: layers, parameters and forward passes.

mod halves;
mod prompt;
mod training;

use super::folder::Config;
use super::layer::block::{self, Block};
use super::layer::embedding::{Embeddings, PADDING};
use super::layer::head::Head;
use super::layer::norm::Norm;
use super::layer::sanitizer::{NoiseLayer, Perturb, Rows, Sanitizer};
use super::parameters::{ParameterId, Parameters};
use super::pass::Pass;
use super::{Error, Result};
pub use training::{Forward, ForwardOptions};
use undertone_data::Batch;
use undertone_settings::Quantize;
use undertone_tensor::{Device, Host, Matrix, Precision};

/// The layers of a model.
#[derive(Clone, Debug)]
pub struct Network {
    pub embeddings: Embeddings,
    /// Transformer blocks, first to last.
    pub blocks: Vec<Block>,
    /// Final normalization, after the last block.
    pub last_norm: Option<Norm>,
    /// Task head.
    pub head: Head,
    /// Local-DP layer, which bounds and perturbs embeddings.
    pub sanitizer: Option<Sanitizer>,
    /// Vocabulary size, in tokens.
    pub vocabulary: usize,
    /// Maximum sequence length, in tokens.
    pub max_positions: usize,
}

/// A model: configuration, layers and parameters.
#[derive(Clone, Debug)]
pub struct Model {
    /// Keys of `config.json`.
    pub config: Config,
    pub network: Network,
    pub parameters: Parameters,
    /// Fine-tuning method; `None` until one is applied.
    pub tuning: Option<super::tuning::Tuning>,
    /// Names of parameters that the weights file lacks and that were randomly initialized.
    pub fresh: Vec<String>,
    /// Whether training stores only the input of each block and recomputes its activations in the
    /// backward pass (activation checkpointing): slower and less memory, with identical results.
    pub recompute: bool,
    /// Quantization of the frozen weights of linear layers, if any.
    pub quantize: Option<Quantize>,
    device: Device,
}

/// First block and embeddings to save activations for, if no backward pass follows.
const NO_BACKWARD: (usize, bool) = (usize::MAX, false);

/// Position of each token in its sequence.
fn positions(starts: &[usize]) -> Vec<u32> {
    starts.windows(2).flat_map(|w| 0..(w[1] - w[0]) as u32).collect()
}

/// Bytes of kept gradients per micro-batch in main memory.
const ON_HOST: usize = 1 << 30;

/// Maximum number of sequences and tokens per micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoMicroBatch {
    pub sequences: usize,
    pub tokens: usize,
}

/// The padded batch that the data holder's half reads instead of the original one.
struct Padded {
    batch: Batch,
    /// Number of tokens in each sequence, excluding padding.
    visible: Vec<usize>,
}

/// The batch that the data holder's half reads: the original or the padded one.
fn lower<'a>(batch: &'a Batch, padded: Option<&'a Padded>) -> (&'a Batch, Option<&'a [usize]>) {
    padded.map_or((batch, None), |padded| (&padded.batch, Some(&padded.visible)))
}

impl Model {
    pub(crate) fn new(
        config: Config,
        network: Network,
        parameters: Parameters,
        fresh: Vec<String>,
    ) -> Self {
        Self {
            config,
            network,
            parameters,
            tuning: None,
            fresh,
            recompute: false,
            quantize: None,
            device: Device::Cpu,
        }
    }

    /// Everything that determines the model's computation besides its parameter values:
    /// configuration, layers, activations, fine-tuning method. Changing any of them changes the
    /// text.
    pub fn structure(&self) -> String {
        // Parameter values are hashed separately, the device, which affects rounding, is recorded
        // separately, and recomputed activations are identical.
        let Self {
            config,
            network,
            parameters: _,
            tuning,
            fresh,
            recompute: _,
            quantize: _,
            device: _,
        } = self;
        format!("{config:?} {network:?} {tuning:?} {fresh:?}")
    }

    /// Moves the parameters to a device (CPU or GPU).
    pub fn to_device(&mut self, device: &Device) -> Result<()> {
        self.parameters.to_device(device)?;
        self.device = device.clone();
        Ok(())
    }

    /// Most bytes that keys and values of a token take while text is generated.
    pub fn cached_bytes_per_token(&self) -> u64 {
        let widths = self.network.blocks.iter().map(|block| {
            let attention = &block.attention;
            2 * attention.key_heads * attention.width
        });
        (widths.sum::<usize>() * size_of::<f32>()) as u64
    }

    /// Stores frozen weight matrices in the format in which the device's matrix products round
    /// them, which halves the memory for bf16. Only for models whose frozen weights are not saved
    /// again.
    pub fn round_frozen(&mut self) -> Result<()> {
        Ok(self.parameters.round_frozen()?)
    }

    /// Default micro-batch size of a training step: on the CPU what fits in the caches, on a GPU
    /// what fits in its memory, but no more than is needed to keep it busy.
    pub fn micro_batch(&self) -> AutoMicroBatch {
        // Private training keeps some gradients for each unit.
        let kept = 4 * self.kept_per_unit().max(1);
        let Some(memory) = self.device.memory() else {
            let sequences = (ON_HOST / kept).clamp(1, 64);
            return AutoMicroBatch { sequences, tokens: 4096 };
        };
        let numbers = self.numbers_per_token();
        let number = if self.device.precision() == Precision::Bf16 { 2 } else { 4 };
        // Weights, gradient sums and moments.
        let weights: usize = self.parameters.iter().map(|(_, p)| 4 * p.len()).sum();
        let states: usize =
            self.parameters.iter().filter(|(_, p)| p.trainable).map(|(_, p)| 16 * p.len()).sum();
        let room = (memory as usize / 2).saturating_sub(weights + states);
        let tokens = (room / (number * numbers).max(1)).clamp(256, 32_768);
        let sequences = (memory as usize / 8 / kept).clamp(1, 4096);
        AutoMicroBatch { sequences, tokens }
    }

    /// Parameters that are used more than once: the head's weight if it is the embedding table, and
    /// the relative-position parameters shared by all blocks.
    pub fn tied_parameters(&self) -> Vec<ParameterId> {
        let Network { embeddings, head, blocks, .. } = &self.network;
        let of_head = embeddings.parameters().filter(|&id| id == head.out.weight);
        let shared = blocks.first().and_then(|block| block.attention.relative.as_ref());
        of_head.chain(shared.into_iter().flat_map(|layer| layer.parameters())).collect()
    }

    /// The device that holds the parameters.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Fails if a token is outside the vocabulary.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        let vocabulary = self.network.vocabulary;
        match tokens.iter().find(|&&token| token as usize >= vocabulary) {
            Some(token) => Err(Error::Request(format!(
                "token {token} is beyond the model's vocabulary of {vocabulary}; use the \
                 model's own tokenizer"
            ))),
            None => Ok(()),
        }
    }

    /// Fails if the batch has an unknown token, or an empty or overlong sequence.
    pub fn check(&self, batch: &Batch) -> Result<()> {
        let batch = &*self.prompted(batch);
        let network = &self.network;
        let before = network.embeddings.prompt.map_or(0, |prompt| prompt.tokens);
        for window in batch.starts.windows(2) {
            let own = (window[0] + before).min(window[1])..window[1];
            self.check_tokens(&batch.tokens[own.clone()])?;
            let length = own.len();
            if length == 0 {
                return Err(Error::Request(
                    "a sequence has no tokens; give every row some text".into(),
                ));
            }
            if length > network.max_positions {
                return Err(Error::Request(format!(
                    "a sequence has {length} tokens, but the model has positions for {}; lower \
                     max_tokens",
                    network.max_positions
                )));
            }
        }
        let segments = network.embeddings.segments.map(|table| self.parameters.value(table).rows());
        match (segments, batch.segments.iter().max()) {
            (Some(rows), Some(&largest)) if largest as usize >= rows => Err(Error::Request(
                format!("segment {largest} is out of range: the model has {rows} segments"),
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
            visible: None,
            dropout_seed: seed,
            keep,
            panels: None,
        }
    }

    /// The batch with every sequence padded, if the sanitizer requires it.
    fn padded(&self, batch: &Batch) -> Result<Option<Padded>> {
        let Some(Rows::Padded(wanted)) = self.network.sanitizer.as_ref().map(|layer| layer.rows)
        else {
            return Ok(None);
        };
        let length = wanted.min(self.network.max_positions).max(batch.longest());
        let padding = self.config.index_or("pad_token_id", 0)?;
        self.check_tokens(&[padding])?;
        let visible: Vec<usize> = (0..batch.sequences()).map(|i| batch.length(i)).collect();
        let mut padded = Batch {
            tokens: Vec::new(),
            segments: Vec::new(),
            starts: (0..=batch.sequences()).map(|i| i * length).collect(),
            targets: batch.targets.clone(),
            units: batch.units.clone(),
        };
        for (i, end) in padded.starts[1..].iter().enumerate() {
            padded.tokens.extend_from_slice(&batch.tokens[batch.range(i)]);
            padded.tokens.resize(*end, padding);
            padded.segments.extend_from_slice(&batch.segments[batch.range(i)]);
            padded.segments.resize(*end, 0);
        }
        Ok(Some(Padded { batch: padded, visible }))
    }

    /// The position of each token that the data holder's half reads. Padding has positions like any
    /// other token, except in RoBERTa, where all padding shares a dedicated position.
    fn lower_positions(&self, starts: &[usize], visible: Option<&[usize]>) -> Vec<u32> {
        let mut lowered = positions(starts);
        let own = self.network.embeddings.positions.is_some_and(|(_, first)| first > 0);
        for (window, &length) in starts.windows(2).zip(visible.into_iter().flatten()) {
            if own {
                lowered[window[0] + length..window[1]].fill(PADDING);
            }
        }
        lowered
    }

    /// Hidden states `[tokens, hidden]` after the embeddings, after each block, and after the final
    /// normalization, if any; with a soft prompt, also of its virtual tokens.
    pub fn hidden_states(&self, batch: &Batch) -> Result<Vec<Matrix>> {
        self.check(batch)?;
        let batch = &*self.prompted(batch);
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

    /// The logits, `[sequences, classes]` or `[tokens, classes]` (only for the `wanted` tokens, if
    /// given).
    pub fn logits(&self, batch: &Batch, wanted: Option<&[u32]>) -> Result<Matrix> {
        self.noisy_logits(batch, wanted, None)
    }

    /// The logits with noise added by the sanitizer.
    pub fn noisy_logits(
        &self,
        batch: &Batch,
        wanted: Option<&[u32]>,
        noise: Option<&dyn Perturb>,
    ) -> Result<Matrix> {
        self.check(batch)?;
        let (batch, wanted) = (&*self.prompted(batch), self.prompted_rows(batch, wanted));
        let wanted = wanted.as_deref();
        let padded = self.padded(batch)?;
        let (lower, visible) = lower(batch, padded.as_ref());
        let positions = self.lower_positions(&lower.starts, visible);
        let pass = Pass { visible, ..self.pass(&lower.starts, &positions, None, false) };
        let x = self.below(&pass, &pass, lower, NO_BACKWARD)?.output;
        let Some(sanitizer) = &self.network.sanitizer else {
            if noise.is_some() {
                return Err(Error::Request(
                    "noise needs a sanitizer, which the model does not have".into(),
                ));
            }
            return Ok(self.above(&pass, x, wanted, NO_BACKWARD)?.logits);
        };
        let starts = sanitizer.starts(&batch.starts);
        let bounded = sanitizer.bounded(&pass, &x)?.0;
        let options = ForwardOptions { noise, ..ForwardOptions::default() };
        Ok(self.forward_bounded(bounded, &starts, wanted, &options, NO_BACKWARD)?.0.logits)
    }

    /// Attention weights of the first or last token of each sequence in the last block, `[heads,
    /// length]` per sequence.
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
            x = last.attention_input(&pass, &x)?.0;
        }
        Ok(last.attention.token_weights(&pass, &x, last_token)?)
    }

    /// Number of blocks below the sanitizer; all of them if there is none.
    pub fn cut(&self) -> usize {
        match self.network.sanitizer.as_ref().map(|sanitizer| sanitizer.noise_layer) {
            Some(NoiseLayer::After(blocks)) => blocks,
            Some(NoiseLayer::Output | NoiseLayer::Pooler) | None => self.network.blocks.len(),
        }
    }

    /// The data holder's half before noise is added: embeddings of bounded norm, and the first row
    /// of each sequence.
    pub fn bounded_rows(&self, batch: &Batch) -> Result<(Host, Vec<usize>)> {
        let Some(sanitizer) = &self.network.sanitizer else {
            return Err(Error::Request("the model has no sanitizer".into()));
        };
        self.check(batch)?;
        let padded = self.padded(batch)?;
        let (lower, visible) = lower(batch, padded.as_ref());
        let positions = self.lower_positions(&lower.starts, visible);
        let pass = Pass { visible, ..self.pass(&lower.starts, &positions, None, false) };
        let x = self.below(&pass, &pass, lower, NO_BACKWARD)?.output;
        Ok((sanitizer.bounded(&pass, &x)?.0, sanitizer.starts(&batch.starts)))
    }
}
