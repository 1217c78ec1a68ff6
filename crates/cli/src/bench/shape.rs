//! Sizes of a model with random weights.

use crate::failure::{Failure, Outcome};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::ops::RangeInclusive;
use undertone::model::architecture::{Architecture, Dimensions};
use undertone::model::folder::Random;
use undertone::model::{Model, TaskHead};
use undertone_run::Quantize;

/// A model with random weights.
#[derive(Args)]
pub struct Shape {
    /// Model architecture
    #[arg(long, value_enum, default_value = "bert")]
    pub arch: Architecture,
    /// Number of transformer blocks
    #[arg(long, default_value_t = 6)]
    pub layers: usize,
    /// Hidden size
    #[arg(long, default_value_t = 384)]
    pub hidden: usize,
    /// Attention heads per block
    #[arg(long, default_value_t = 12)]
    pub heads: usize,
    /// Key and value heads per block, for Llama and related architectures [default: same as
    /// `--heads`]
    #[arg(long)]
    pub key_heads: Option<usize>,
    /// Width of an attention head, for Llama and related architectures [default: hidden / heads]
    #[arg(long)]
    pub head_width: Option<usize>,
    /// Width of the feed-forward layers [default: 4 × hidden]
    #[arg(long)]
    pub inner: Option<usize>,
    /// Vocabulary size
    #[arg(long, default_value_t = 30_522)]
    pub vocabulary: usize,
    /// Data type of frozen weights; nf4 applies to linear layers, with bf16 for the rest
    #[arg(long, value_enum, default_value = "f32")]
    pub weights: Weights,
}

/// Data type of frozen weights.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Weights {
    F32,
    Bf16,
    Nf4,
}

impl Shape {
    /// Rejects implausibly large sizes before allocating memory.
    pub fn check(&self) -> Outcome {
        within("--layers", self.layers, 1..=10_000)?;
        within("--hidden", self.hidden, 1..=1 << 16)?;
        within("--heads", self.heads, 1..=1 << 16)?;
        within("--key-heads", self.key_heads.unwrap_or(self.heads), 1..=self.heads)?;
        within("--head-width", self.head_width.unwrap_or(1), 1..=1 << 12)?;
        within("--inner", self.inner.unwrap_or(1), 1..=1 << 20)?;
        within("--vocabulary", self.vocabulary, 1..=1 << 24)
    }

    /// The task head that the architecture is usually trained for.
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

    /// The model, for sequences of up to `tokens` tokens.
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
        let mut config = self.arch.config(dimensions, &labels);
        if let Some(width) = self.head_width {
            if !config.as_map().contains_key("num_key_value_heads") {
                return Err(Failure::arguments("--head-width is for Llama and its relatives"));
            }
            config.set("head_dim", json!(width));
        }
        let mut source = match self.weights {
            Weights::F32 => Random::new(1, 0.02),
            Weights::Bf16 | Weights::Nf4 => Random::in_bf16(1, 0.02),
        };
        let quantize = (self.weights == Weights::Nf4).then_some(Quantize::Nf4);
        let task_head = self.task_head();
        Ok(self.arch.random_from(&mut source, config, task_head, labels.len(), quantize)?)
    }
}

/// Checks that a number is within a range.
pub fn within(name: &str, value: usize, range: RangeInclusive<usize>) -> Outcome {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(Failure::arguments(format!("{name} is {value}, but must be from {least} to {most}")))
}
