//! Sizes of a model with random weights.

use crate::failure::{Failure, Outcome};
use clap::Args;
use std::ops::RangeInclusive;
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::{Model, TaskHead};

/// A model with random weights.
#[derive(Args)]
pub struct Shape {
    /// Architecture of the model
    #[arg(long, value_enum, default_value = "bert")]
    pub arch: Architecture,
    /// Number of transformer blocks
    #[arg(long, default_value_t = 6)]
    pub layers: usize,
    /// Hidden size: width of a token's embedding
    #[arg(long, default_value_t = 384)]
    pub hidden: usize,
    /// Attention heads of each block
    #[arg(long, default_value_t = 12)]
    pub heads: usize,
    /// Heads of keys and values of each block, of Llama [default: as many as heads]
    #[arg(long)]
    pub key_heads: Option<usize>,
    /// Width of the feed-forward layers [default: four times hidden]
    #[arg(long)]
    pub inner: Option<usize>,
    /// Size of the vocabulary
    #[arg(long, default_value_t = 30_522)]
    pub vocabulary: usize,
}

impl Shape {
    /// Sizes that no machine has are refused before memory for them is asked for.
    pub fn check(&self) -> Outcome {
        within("--layers", self.layers, 1..=10_000)?;
        within("--hidden", self.hidden, 1..=1 << 16)?;
        within("--heads", self.heads, 1..=1 << 16)?;
        within("--key-heads", self.key_heads.unwrap_or(self.heads), 1..=self.heads)?;
        within("--inner", self.inner.unwrap_or(1), 1..=1 << 20)?;
        within("--vocabulary", self.vocabulary, 1..=1 << 24)
    }

    /// What the architecture is usually trained for.
    pub fn task_head(&self) -> TaskHead {
        match self.arch {
            Architecture::Bert
            | Architecture::DistilBert
            | Architecture::Roberta
            | Architecture::XlmRoberta
            | Architecture::Camembert
            | Architecture::MpNet
            | Architecture::Deberta
            | Architecture::ModernBert => TaskHead::SequenceClassification,
            Architecture::Gpt2
            | Architecture::Llama
            | Architecture::SmolLm3
            | Architecture::Mistral
            | Architecture::Qwen2
            | Architecture::Qwen3
            | Architecture::Gemma2
            | Architecture::Gemma3
            | Architecture::Phi3 => TaskHead::CausalLanguageModel,
        }
    }

    /// The model, for sequences of at most so many tokens.
    pub fn model(&self, tokens: usize) -> Result<Model, Failure> {
        let dimensions = Dimensions {
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            inner: self.inner.unwrap_or(4 * self.hidden),
            vocabulary: self.vocabulary,
            positions: tokens.max(512),
            key_heads: self.key_heads,
        };
        let labels = ["no".to_owned(), "yes".to_owned()];
        Ok(self.arch.random(dimensions, self.task_head(), &labels, 1)?)
    }
}

/// A number must be in a range.
pub fn within(name: &str, value: usize, range: RangeInclusive<usize>) -> Outcome {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(Failure::arguments(format!("{name} is {value}, but must be from {least} to {most}")))
}
