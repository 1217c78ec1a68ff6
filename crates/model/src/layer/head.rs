//! Task heads: sequence classification, token classification and language modeling.

use super::linear::{self, Linear};
use super::norm::{self, Norm};
use crate::factor::{Factor, Receiver};
use crate::parameters::ParameterId;
use crate::pass::Pass;
use std::sync::Arc;
use undertone_settings::TaskName;
use undertone_tensor::{self as tensor, Activation, Dropout, Matrix, Result};

/// Kind of task head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskHead {
    /// Predicts one class per sequence.
    SequenceClassification,
    /// Predicts one class per token.
    TokenClassification,
    /// Predicts the next token.
    CausalLanguageModel,
    /// Predicts the original token at a masked position.
    MaskedLanguageModel,
}

impl TaskHead {
    /// The task head that a task needs.
    pub fn of(task: TaskName) -> Self {
        match task {
            TaskName::Classification => Self::SequenceClassification,
            TaskName::LanguageModeling | TaskName::Completion | TaskName::Chat => {
                Self::CausalLanguageModel
            }
            TaskName::MaskedLanguageModeling => Self::MaskedLanguageModel,
        }
    }
}

/// Which hidden states of a sequence a task head reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The first token, `[CLS]`.
    First,
    /// The last token.
    Last,
    /// The mean over all tokens.
    Mean,
    /// Every token, or selected ones.
    Tokens,
}

/// Task head: dense layer, activation, normalization and dropout, if the architecture has them,
/// followed by a linear layer to the classes.
#[derive(Clone, Debug)]
pub struct Head {
    pub task_head: TaskHead,
    /// Which hidden states it reads.
    pub pick: Pick,
    /// Dense layer before the output layer, with its activation.
    pub dense: Option<(Linear, Activation)>,
    /// Normalization after the dense layer.
    pub norm: Option<Norm>,
    /// Dropout probability before the output layer.
    pub dropout: f32,
    /// Output layer, to classes or vocabulary; its weight may be tied to the token embeddings.
    pub out: Linear,
    /// Bound of the logits under soft-capping (Gemma 2).
    pub soft_cap: Option<f32>,
}

/// Activations saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    rows: Option<Arc<Vec<u32>>>,
    tokens: usize,
    dense: Option<(Matrix, linear::Saved)>,
    norm: Option<norm::Saved>,
    dropout: Option<Dropout>,
    out: linear::Saved,
    /// The logits, if they are soft-capped.
    capped: Option<Matrix>,
}

/// Index that distinguishes the head's dropout mask.
const DROPOUT_SITE: u64 = u64::MAX - 1;

/// Receiver that annotates each factor with the token to which each row belongs.
pub(super) struct OfRows<'a> {
    pub rows: Option<Arc<Vec<u32>>>,
    pub receiver: &'a mut dyn Receiver,
}

impl Receiver for OfRows<'_> {
    fn receive(&mut self, mut factor: Factor) -> Result<()> {
        match &mut factor {
            Factor::Product { tokens, .. }
            | Factor::Sum { tokens, .. }
            | Factor::Scale { tokens, .. } => {
                tokens.clone_from(&self.rows);
            }
            Factor::Rows { .. } => {}
        }
        self.receiver.receive(factor)
    }
}

/// The sequence of each token.
fn sequences(pass: &Pass) -> Vec<u32> {
    let lengths = pass.starts.windows(2).map(|window| window[1] - window[0]).enumerate();
    lengths.flat_map(|(i, length)| std::iter::repeat_n(i as u32, length)).collect()
}

/// Weight of each token in the mean of its sequence.
fn shares(pass: &Pass) -> Vec<f32> {
    pass.starts.windows(2).map(|window| 1.0 / (window[1] - window[0]).max(1) as f32).collect()
}

impl Head {
    /// Rows of the hidden states that the head reads; `None` means all. The mean of a sequence is
    /// attributed to its first token.
    fn rows(&self, pass: &Pass, wanted: Option<&[u32]>) -> Option<Arc<Vec<u32>>> {
        let windows = pass.starts.windows(2);
        match self.pick {
            Pick::First | Pick::Mean => Some(Arc::new(windows.map(|w| w[0] as u32).collect())),
            Pick::Last => Some(Arc::new(windows.map(|w| (w[1] - 1) as u32).collect())),
            Pick::Tokens => wanted.map(|rows| Arc::new(rows.to_vec())),
        }
    }

    /// Input width, in features.
    pub fn width(&self) -> usize {
        self.dense.as_ref().map_or(self.out.inputs, |(dense, _)| dense.inputs)
    }

    /// The logits, `[sequences, classes]` or `[tokens, classes]` (only for the `wanted` tokens, if
    /// given).
    pub fn forward(
        &self,
        pass: &Pass,
        hidden: &Matrix,
        wanted: Option<&[u32]>,
    ) -> Result<(Matrix, Saved)> {
        let rows = self.rows(pass, wanted);
        let tokens = hidden.rows();
        let mut x = match (&rows, self.pick) {
            (_, Pick::Mean) => {
                let sums = tensor::scatter(hidden, &sequences(pass), pass.starts.len() - 1)?;
                tensor::scale_rows(&sums, &shares(pass))?
            }
            (Some(rows), _) => tensor::gather(hidden, rows)?,
            (None, _) => hidden.clone(),
        };
        let mut dense = None;
        if let Some((layer, activation)) = &self.dense {
            let (before, saved) = layer.forward(pass, &x)?;
            x = tensor::activate(*activation, &before)?;
            dense = Some((before, saved));
        }
        let mut norm = None;
        if let Some(layer) = &self.norm {
            let (y, saved) = layer.forward(pass, &x, None)?;
            x = y;
            norm = Some(saved);
        }
        let dropout = pass.dropout(self.dropout, DROPOUT_SITE);
        if let Some(dropout) = dropout {
            x = tensor::drop_out(dropout, &x)?;
        }
        let (mut logits, out) = self.out.forward(pass, &x)?;
        let mut capped = None;
        if let Some(cap) = self.soft_cap {
            logits = tensor::soft_cap(&logits, cap)?;
            capped = pass.keep.then(|| logits.clone());
        }
        Ok((logits, Saved { rows, tokens, dense, norm, dropout, out, capped }))
    }

    /// Emits the factors and returns the gradient of the hidden states.
    pub fn backward(
        &self,
        pass: &Pass,
        saved: Saved,
        logits_gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<Matrix> {
        let receiver = &mut OfRows { rows: saved.rows.clone(), receiver };
        let uncapped = match (self.soft_cap, saved.capped) {
            (Some(cap), Some(capped)) => tensor::soft_cap_backward(&capped, logits_gradient, cap)?,
            _ => logits_gradient.clone(),
        };
        let mut gradient = self.out.backward_alone(pass, saved.out, &uncapped, receiver)?;
        if let Some(dropout) = saved.dropout {
            gradient = tensor::drop_out(dropout, &gradient)?;
        }
        if let (Some(layer), Some(saved)) = (&self.norm, saved.norm) {
            gradient = layer.backward(pass, saved, &gradient, receiver)?;
        }
        if let (Some((layer, activation)), Some((before, saved))) = (&self.dense, saved.dense) {
            gradient = tensor::activate_backward(*activation, &before, &gradient)?;
            gradient = layer.backward_alone(pass, saved, &gradient, receiver)?;
        }
        if self.pick == Pick::Mean {
            let of_tokens = tensor::scale_rows(&gradient, &shares(pass))?;
            return tensor::gather(&of_tokens, &sequences(pass));
        }
        match saved.rows {
            Some(rows) => tensor::scatter(&gradient, &rows, saved.tokens),
            None => Ok(gradient),
        }
    }

    /// All parameters of the head.
    pub fn parameters(&self) -> impl Iterator<Item = ParameterId> {
        let layers = self.dense.iter().map(|dense| &dense.0).chain([&self.out]);
        let norm = self.norm.iter().flat_map(|norm| [Some(norm.weight), norm.bias]);
        layers.flat_map(Linear::parameters).chain(norm.flatten())
    }
}
