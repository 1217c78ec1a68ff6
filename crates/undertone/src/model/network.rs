//! A whole model and its passes.

use super::factor::Receiver;
use super::folder::Config;
use super::layer::block::{self, Block};
use super::layer::embedding::{self, Embeddings};
use super::layer::head::{self, Head};
use super::layer::norm::{self, Norm};
use super::layer::sanitiser::{self, Perturb, Sanitiser, Spot};
use super::objective::{FlippedLabels, Objective, Weighting};
use super::parameters::{ParameterId, Parameters};
use super::pass::Pass;
use super::{Error, Result};
use crate::data::Batch;
use crate::tensor::{self, Host, Matrix, Place};
use std::ops::Range;

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
    place: Place,
}

/// A forward pass whose backward pass can follow.
#[derive(Debug)]
pub struct Forward {
    /// One row for each sequence or token.
    pub logits: Matrix,
    dropout_seed: Option<u64>,
    /// From which block on states were kept.
    first_block: usize,
    embeddings: Option<embedding::Saved>,
    below: Half,
    sanitiser: Option<(Option<sanitiser::SavedBelow>, sanitiser::SavedAbove)>,
    above: Half,
    last_norm: Option<norm::Saved>,
    head: head::Saved,
}

/// Kept states of the blocks below or above the sanitiser, and how the rows lay there.
#[derive(Debug, Default)]
struct Half {
    starts: Vec<usize>,
    positions: Vec<u32>,
    blocks: Vec<block::Saved>,
}

/// What the passes below and above the sanitiser give and keep.
struct Below {
    output: Matrix,
    embeddings: Option<embedding::Saved>,
    blocks: Vec<block::Saved>,
    norm: Option<norm::Saved>,
}

struct Above {
    logits: Matrix,
    blocks: Vec<block::Saved>,
    norm: Option<norm::Saved>,
    head: head::Saved,
}

/// What is special about a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions<'a> {
    /// Names the dropout masks; none drops nothing.
    pub dropout_seed: Option<u64>,
    /// The noise of what the sanitiser releases; none leaves it as it is.
    pub noise: Option<&'a dyn Perturb>,
    /// How often labels lie.
    pub labels: Option<FlippedLabels>,
}

/// Of a pass without a backward pass.
const NOTHING: (usize, bool) = (usize::MAX, false);

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
                return Err(Error::Request("noise was asked for, but the model has no sanitiser".into()));
            }
            return Ok(self.above(&pass, x, wanted, NOTHING)?.logits);
        };
        let starts = sanitiser.starts(&batch.starts);
        let bounded = sanitiser.bounded(&pass, &x)?.0;
        let conditions = Conditions { noise, ..Conditions::default() };
        Ok(self.provide(bounded, &starts, wanted, &conditions, NOTHING)?.0.logits)
    }

    /// The weights with which the first or the last token of each sequence looks at its sequence in the last block: one row for each head.
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

    /// Whether the last normalisation is below the sanitiser.
    fn norm_is_below(&self) -> bool {
        self.network.sanitiser.as_ref().is_some_and(|sanitiser| sanitiser.spot == Spot::Output)
    }

    /// The first block whose backward pass is needed, and whether the embeddings' is: nothing below the lowest trainable parameter.
    fn lowest_trainable(&self) -> (usize, bool) {
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
    fn trains_below(&self) -> bool {
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
    fn below(&self, keeping: &Pass, passing: &Pass, batch: &Batch, keep: (usize, bool)) -> Result<Below> {
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
    fn above(&self, pass: &Pass, x: Matrix, wanted: Option<&[u32]>, keep: (usize, bool)) -> Result<Above> {
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

    /// The provider's half, from bounded rows to logits: noise, the sanitiser's upper half, and what is above it.
    fn provide(
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
        let released = Matrix::Host(released).to_place(&self.place)?;
        let (x, saved) = sanitiser.reconstruct(&pass, released, conditions.noise.is_some())?;
        let above = self.above(&pass, x, wanted, keep)?;
        Ok((above, saved, positions))
    }

    /// What the owner of each sequence computes before noise is added: rows of bounded norm, and where each sequence's begin.
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

    /// A forward pass that keeps what the backward pass needs. `dropout_seed` names the dropout masks; none drops nothing.
    pub fn forward(
        &self,
        batch: &Batch,
        wanted: Option<&[u32]>,
        dropout_seed: Option<u64>,
    ) -> Result<Forward> {
        self.forward_under(batch, wanted, &Conditions { dropout_seed, ..Conditions::default() })
    }

    /// The same under conditions.
    pub fn forward_under(
        &self,
        batch: &Batch,
        wanted: Option<&[u32]>,
        conditions: &Conditions,
    ) -> Result<Forward> {
        self.check(batch)?;
        let keep = self.lowest_trainable();
        let dropout_seed = conditions.dropout_seed;
        let lower_positions = positions(&batch.starts);
        let keeping = self.pass(&batch.starts, &lower_positions, dropout_seed, true);
        let passing = Pass { keep: false, ..keeping };
        let Below { output: x, embeddings, blocks, norm } = self.below(&keeping, &passing, batch, keep)?;
        let below = Half { starts: batch.starts.clone(), positions: lower_positions.clone(), blocks };
        let Some(layer) = &self.network.sanitiser else {
            let Above { logits, norm, head, .. } = self.above(&keeping, x, wanted, keep)?;
            let above = Half { starts: batch.starts.clone(), positions: lower_positions, blocks: Vec::new() };
            let first_block = keep.0;
            return Ok(Forward {
                logits,
                dropout_seed,
                first_block,
                embeddings,
                below,
                sanitiser: None,
                above,
                last_norm: norm,
                head,
            });
        };
        let pass = if self.trains_below() { &keeping } else { &passing };
        let (bounded, saved) = layer.bounded(pass, &x)?;
        drop(x);
        let starts = layer.starts(&batch.starts);
        let (upper, above, positions) = self.provide(bounded, &starts, wanted, conditions, keep)?;
        Ok(Forward {
            logits: upper.logits,
            dropout_seed,
            first_block: keep.0,
            embeddings,
            below,
            sanitiser: Some((self.trains_below().then_some(saved), above)),
            above: Half { starts, positions, blocks: upper.blocks },
            last_norm: norm.or(upper.norm),
            head: upper.head,
        })
    }

    /// The backward pass of blocks that were kept, the last first; `None` when nothing below is wanted.
    fn descend(
        &self,
        pass: &Pass,
        blocks: &[block::Block],
        kept: Vec<block::Saved>,
        wanted_below: bool,
        mut gradient: Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Option<Matrix>> {
        let first = blocks.len() - kept.len();
        for (i, (block, saved)) in blocks[first..].iter().zip(kept).enumerate().rev() {
            match block.backward(pass, saved, gradient, i > 0 || wanted_below, receiver)? {
                Some(next) => gradient = next,
                None => return Ok(None),
            }
        }
        Ok(wanted_below.then_some(gradient))
    }

    /// The backward pass: hands out the factors of every trainable parameter's gradient.
    pub fn backward(
        &self,
        forward: Forward,
        logits_gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        let Forward { logits, dropout_seed, embeddings, below, above, sanitiser, first_block, .. } = forward;
        drop(logits);
        let network = &self.network;
        let cut = self.cut();
        let pass = self.pass(&above.starts, &above.positions, dropout_seed, true);
        let mut gradient = network.head.backward(&pass, forward.head, logits_gradient, receiver)?;
        let trained = |id: ParameterId| self.parameters.is_trainable(id);
        let norm_is_trained = network.last_norm.as_ref().is_some_and(|norm| trained(norm.weight));
        let sanitiser_is_trained = network.sanitiser.as_ref().is_some_and(|layer| {
            layer.parameters_below().into_iter().chain(layer.parameters_above()).any(trained)
        });
        let blocks_are_trained = first_block < network.blocks.len() || embeddings.is_some();
        if !blocks_are_trained && !norm_is_trained && !sanitiser_is_trained {
            return Ok(());
        }
        let mut last_norm = forward.last_norm;
        if !self.norm_is_below()
            && let (Some(norm), Some(saved)) = (&network.last_norm, last_norm.take())
        {
            gradient = norm.backward(&pass, saved, &gradient, receiver)?;
        }
        let lower_pass = self.pass(&below.starts, &below.positions, dropout_seed, true);
        if let (Some(layer), Some((lower, upper))) = (&network.sanitiser, sanitiser) {
            let wanted = sanitiser_is_trained || lower.is_some();
            let through =
                self.descend(&pass, &network.blocks[cut..], above.blocks, wanted, gradient, receiver)?;
            let Some(through) = through else { return Ok(()) };
            let through = layer.backward_above(&pass, upper, through, receiver)?;
            // Without a saved lower half nothing below learns: the record is not looked at again.
            let Some(lower) = lower else { return Ok(()) };
            gradient = layer.backward_below(&lower_pass, lower, &through, receiver)?;
            if self.norm_is_below()
                && let (Some(norm), Some(saved)) = (&network.last_norm, last_norm.take())
            {
                gradient = norm.backward(&lower_pass, saved, &gradient, receiver)?;
            }
        }
        let wanted = embeddings.is_some();
        let gradient =
            self.descend(&lower_pass, &network.blocks[..cut], below.blocks, wanted, gradient, receiver)?;
        if let (Some(saved), Some(gradient)) = (embeddings, gradient) {
            network.embeddings.backward(&lower_pass, saved, gradient, receiver)?;
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
        self.train_under(batch, weighting, &Conditions { dropout_seed, ..Conditions::default() }, receiver)
    }

    /// The same under conditions.
    pub fn train_under(
        &self,
        batch: &Batch,
        weighting: Weighting,
        conditions: &Conditions,
        receiver: &mut dyn Receiver,
    ) -> Result<Vec<f32>> {
        let objective = Objective::of(batch, self.network.head.purpose)?;
        let forward = self.forward_under(batch, Some(&objective.rows), conditions)?;
        let (losses, gradient) =
            objective.losses(&forward.logits, weighting, &batch.units, conditions.labels)?;
        if let Some(gradient) = gradient {
            self.backward(forward, &gradient, receiver)?;
        }
        Ok(objective.mean_by_example(&losses, batch.sequences()))
    }

    /// The same from rows that [`Model::bounded_rows`] gave for the batch: what is below the sanitiser is not run, and does not learn.
    pub fn train_above(
        &self,
        batch: &Batch,
        bounded: Host,
        weighting: Weighting,
        conditions: &Conditions,
        receiver: &mut dyn Receiver,
    ) -> Result<Vec<f32>> {
        let Some(layer) = &self.network.sanitiser else {
            return Err(Error::Request("the model has no sanitiser".into()));
        };
        let objective = Objective::of(batch, self.network.head.purpose)?;
        let starts = layer.starts(&batch.starts);
        let keep = self.lowest_trainable();
        let (upper, above, positions) =
            self.provide(bounded, &starts, Some(&objective.rows), conditions, keep)?;
        let Above { logits, blocks, norm, head } = upper;
        let (losses, gradient) = objective.losses(&logits, weighting, &batch.units, conditions.labels)?;
        if let Some(gradient) = gradient {
            let forward = Forward {
                logits,
                dropout_seed: conditions.dropout_seed,
                first_block: keep.0,
                embeddings: None,
                below: Half::default(),
                sanitiser: Some((None, above)),
                above: Half { starts, positions, blocks },
                last_norm: norm,
                head,
            };
            self.backward(forward, &gradient, receiver)?;
        }
        Ok(objective.mean_by_example(&losses, batch.sequences()))
    }
}
