//! Training passes: forward with saved activations, loss, and backward.

use super::halves::{Above, Below, Kept};
use super::{Model, lower};
use crate::factor::Receiver;
use crate::layer::sanitizer::{self, Perturb};
use crate::layer::{block, embedding, head, norm};
use crate::objective::{Losses, Objective, RandomizedResponse, Weighting};
use crate::parameters::ParameterId;
use crate::pass::Pass;
use crate::{Error, Result};
use undertone_data::Batch;
use undertone_tensor::{self as tensor, Host, Matrix};

/// Result of a forward pass, with the activations saved for the backward pass.
#[derive(Debug)]
pub struct Forward {
    /// `[sequences, classes]` or `[tokens, classes]`.
    pub logits: Matrix,
    dropout_seed: Option<u64>,
    /// First block with saved activations.
    first_block: usize,
    embeddings: Option<embedding::Saved>,
    below: Half,
    sanitizer: Option<(Option<sanitizer::SavedBelow>, sanitizer::SavedAbove)>,
    above: Half,
    last_norm: Option<norm::Saved>,
    head: head::Saved,
}

/// Saved activations of the blocks below or above the sanitizer, and the layout of their rows.
#[derive(Debug, Default)]
struct Half {
    starts: Vec<usize>,
    positions: Vec<u32>,
    /// Number of tokens in each sequence excluding padding, if there is padding.
    visible: Option<Vec<usize>>,
    blocks: Vec<Kept>,
}

/// Options of a forward pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForwardOptions<'a> {
    /// Seed of the dropout masks; `None` disables dropout.
    pub dropout_seed: Option<u64>,
    /// Noise of the sanitizer; `None` for no noise.
    pub noise: Option<&'a dyn Perturb>,
    /// Randomized response that perturbed the labels; `None` for true labels.
    pub labels: Option<RandomizedResponse>,
}

impl Model {
    /// Forward pass that saves activations for the backward pass; no dropout if `dropout_seed` is
    /// `None`.
    pub fn forward(
        &self,
        batch: &Batch,
        wanted: Option<&[u32]>,
        dropout_seed: Option<u64>,
    ) -> Result<Forward> {
        self.forward_with(
            batch,
            wanted,
            &ForwardOptions { dropout_seed, ..ForwardOptions::default() },
        )
    }

    /// [`Model::forward`] with options.
    pub fn forward_with(
        &self,
        batch: &Batch,
        wanted: Option<&[u32]>,
        options: &ForwardOptions,
    ) -> Result<Forward> {
        self.check(batch)?;
        let (batch, wanted) = (&*self.prompted(batch), self.prompted_rows(batch, wanted));
        let wanted = wanted.as_deref();
        let keep = self.lowest_trainable();
        let dropout_seed = options.dropout_seed;
        let padded = self.padded(batch)?;
        let (lower, visible) = lower(batch, padded.as_ref());
        let lower_positions = self.lower_positions(&lower.starts, visible);
        let keeping =
            Pass { visible, ..self.pass(&lower.starts, &lower_positions, dropout_seed, true) };
        let passing = Pass { keep: false, ..keeping };
        let Below { output: x, embeddings, blocks, norm } =
            self.below(&keeping, &passing, lower, keep)?;
        let below = Half {
            starts: lower.starts.clone(),
            positions: lower_positions.clone(),
            visible: visible.map(<[usize]>::to_vec),
            blocks,
        };
        let Some(layer) = &self.network.sanitizer else {
            let Above { logits, norm, head, .. } = self.above(&keeping, x, wanted, keep)?;
            let above = Half {
                starts: batch.starts.clone(),
                positions: lower_positions,
                visible: None,
                blocks: Vec::new(),
            };
            let first_block = keep.0;
            return Ok(Forward {
                logits,
                dropout_seed,
                first_block,
                embeddings,
                below,
                sanitizer: None,
                above,
                last_norm: norm,
                head,
            });
        };
        let pass = if self.trains_below() { &keeping } else { &passing };
        let (bounded, saved) = layer.bounded(pass, &x)?;
        drop(x);
        let starts = layer.starts(&batch.starts);
        let (upper, above, positions) =
            self.forward_bounded(bounded, &starts, wanted, options, keep)?;
        Ok(Forward {
            logits: upper.logits,
            dropout_seed,
            first_block: keep.0,
            embeddings,
            below,
            sanitizer: Some((self.trains_below().then_some(saved), above)),
            above: Half { starts, positions, visible: None, blocks: upper.blocks },
            last_norm: norm.or(upper.norm),
            head: upper.head,
        })
    }

    /// Backward pass of the blocks with saved activations, starting with the last; returns `None`
    /// if no gradient is needed below them.
    fn backward_blocks(
        &self,
        pass: &Pass,
        blocks: &[block::Block],
        kept: Vec<Kept>,
        wanted_below: bool,
        mut gradient: Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Option<Matrix>> {
        let first = blocks.len() - kept.len();
        for (i, (block, kept)) in blocks[first..].iter().zip(kept).enumerate().rev() {
            let saved = match kept {
                Kept::Activations(saved) => *saved,
                Kept::Input(x) => block.forward(pass, &x)?.1,
            };
            match block.backward(pass, saved, gradient, i > 0 || wanted_below, receiver)? {
                Some(next) => gradient = next,
                None => return Ok(None),
            }
        }
        Ok(wanted_below.then_some(gradient))
    }

    /// Backward pass: sends the factors of every trainable parameter's gradient to `receiver`.
    pub fn backward(
        &self,
        forward: Forward,
        logits_gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        let Forward {
            logits, dropout_seed, embeddings, below, above, sanitizer, first_block, ..
        } = forward;
        drop(logits);
        let network = &self.network;
        let cut = self.cut();
        let pass = self.pass(&above.starts, &above.positions, dropout_seed, true);
        let mut gradient = network.head.backward(&pass, forward.head, logits_gradient, receiver)?;
        let trained = |id: ParameterId| self.parameters.is_trainable(id);
        let norm_is_trained = network.last_norm.as_ref().is_some_and(|norm| trained(norm.weight));
        let sanitizer_is_trained = network.sanitizer.as_ref().is_some_and(|layer| {
            layer.parameters_below().into_iter().chain(layer.parameters_above()).any(trained)
        });
        let blocks_are_trained = first_block < network.blocks.len() || embeddings.is_some();
        if !blocks_are_trained && !norm_is_trained && !sanitizer_is_trained {
            return Ok(());
        }
        let mut last_norm = forward.last_norm;
        if !self.norm_is_below()
            && let (Some(norm), Some(saved)) = (&network.last_norm, last_norm.take())
        {
            gradient = norm.backward(&pass, saved, &gradient, receiver)?;
        }
        let lower_pass = Pass {
            visible: below.visible.as_deref(),
            ..self.pass(&below.starts, &below.positions, dropout_seed, true)
        };
        if let (Some(layer), Some((lower, upper))) = (&network.sanitizer, sanitizer) {
            let wanted = sanitizer_is_trained || lower.is_some();
            let through = self.backward_blocks(
                &pass,
                &network.blocks[cut..],
                above.blocks,
                wanted,
                gradient,
                receiver,
            )?;
            let Some(through) = through else { return Ok(()) };
            let through = layer.backward_above(&pass, upper, through, receiver)?;
            // Without saved activations below, nothing below is trainable, and the unperturbed
            // example is not used.
            let Some(lower) = lower else { return Ok(()) };
            gradient = layer.backward_below(&lower_pass, lower, &through, receiver)?;
            if self.norm_is_below()
                && let (Some(norm), Some(saved)) = (&network.last_norm, last_norm.take())
            {
                gradient = norm.backward(&lower_pass, saved, &gradient, receiver)?;
            }
        }
        let wanted = embeddings.is_some();
        let gradient = self.backward_blocks(
            &lower_pass,
            &network.blocks[..cut],
            below.blocks,
            wanted,
            gradient,
            receiver,
        )?;
        if let (Some(saved), Some(gradient)) = (embeddings, gradient) {
            network.embeddings.backward(&lower_pass, saved, gradient, receiver)?;
        }
        Ok(())
    }

    /// Loss of each example in the batch: the mean over its predictions, in nats.
    pub fn losses(&self, batch: &Batch) -> Result<Vec<f32>> {
        let objective = Objective::of(batch, self.network.head.task_head)?;
        let logits = self.logits(batch, Some(&objective.rows))?;
        objective.check_targets(logits.columns())?;
        let (of_rows, _) = tensor::cross_entropy(&logits, &objective.targets, None)?;
        Losses { objective, of_rows, examples: batch.sequences() }.by_example()
    }

    /// Forward and backward pass for the weighted sum of losses; returns the losses.
    pub fn train(
        &self,
        batch: &Batch,
        weighting: Weighting,
        dropout_seed: Option<u64>,
        receiver: &mut dyn Receiver,
    ) -> Result<Losses> {
        self.train_with(
            batch,
            weighting,
            &ForwardOptions { dropout_seed, ..ForwardOptions::default() },
            receiver,
        )
    }

    /// [`Model::train`] with options. A model with a soft prompt needs a [prompted](Self::prompted)
    /// batch, whose tokens are those of the factors.
    pub fn train_with(
        &self,
        batch: &Batch,
        weighting: Weighting,
        options: &ForwardOptions,
        receiver: &mut dyn Receiver,
    ) -> Result<Losses> {
        if self.missing_prompt(batch).is_some() {
            return Err(Error::Request(
                "the batch lacks the soft prompt's virtual tokens, so its gradients could not be \
                 told apart; pass Model::prompted(batch)"
                    .into(),
            ));
        }
        let objective = Objective::of(batch, self.network.head.task_head)?;
        let forward = self.forward_with(batch, Some(&objective.rows), options)?;
        let (of_rows, gradient) =
            objective.losses(&forward.logits, weighting, &batch.units, options.labels)?;
        if let Some(gradient) = gradient {
            self.backward(forward, &gradient, receiver)?;
        }
        Ok(Losses { objective, of_rows, examples: batch.sequences() })
    }

    /// Like [`Model::train_with`], but starts from the embeddings that [`Model::bounded_rows`]
    /// returned for the batch: layers below the sanitizer are neither run nor trained.
    pub fn train_above(
        &self,
        batch: &Batch,
        bounded: Host,
        weighting: Weighting,
        options: &ForwardOptions,
        receiver: &mut dyn Receiver,
    ) -> Result<Losses> {
        let Some(layer) = &self.network.sanitizer else {
            return Err(Error::Request("the model has no sanitizer".into()));
        };
        let objective = Objective::of(batch, self.network.head.task_head)?;
        let starts = layer.starts(&batch.starts);
        let keep = self.lowest_trainable();
        let (upper, above, positions) =
            self.forward_bounded(bounded, &starts, Some(&objective.rows), options, keep)?;
        let Above { logits, blocks, norm, head } = upper;
        let (of_rows, gradient) =
            objective.losses(&logits, weighting, &batch.units, options.labels)?;
        if let Some(gradient) = gradient {
            let forward = Forward {
                logits,
                dropout_seed: options.dropout_seed,
                first_block: keep.0,
                embeddings: None,
                below: Half::default(),
                sanitizer: Some((None, above)),
                above: Half { starts, positions, visible: None, blocks },
                last_norm: norm,
                head,
            };
            self.backward(forward, &gradient, receiver)?;
        }
        Ok(Losses { objective, of_rows, examples: batch.sequences() })
    }
}
