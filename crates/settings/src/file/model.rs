//! `[model]`: the base model and which of its parameters are trainable.

use super::data::one_or_more;
use serde::{Deserialize, Serialize};

/// `[model]`: the base model and which of its parameters are trainable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSection {
    /// Folder of the base model; required, unless `hub` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Name of the base model on the Hugging Face Hub, instead of a folder; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// Branch, tag or commit on the Hub; `main` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Which parameters are trainable; chosen by the recipe by default.
    #[serde(default = "full")]
    pub tuning: Tuning,
    /// Quantization of the frozen weights of linear layers (QLoRA); none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantize: Option<Quantize>,
    /// Values from which BitFit's biases start, to replicate Rap-FT; by default those of the base
    /// model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub biases: Option<InitialBiases>,
}

/// Values from which BitFit's biases start, instead of those of the base model. Rap-FT "initializes
/// the bias of the pretrained model" and does not say how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitialBiases {
    /// Zero, as GPT-2 and BERT initialize them. A zero bias has no relevance.
    Zero,
    /// Normal with std 0.02, as GPT-2 and BERT initialize weights.
    Normal,
}

/// Quantization of frozen weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantize {
    /// 4-bit NormalFloat with double quantization, as in QLoRA.
    Nf4,
}

fn full() -> Tuning {
    Tuning::Full
}

impl ModelSection {
    /// The model's path, or its Hub name with the revision: `owner/model@revision`.
    pub fn name(&self) -> String {
        let name = self.path.as_deref().or(self.hub.as_deref()).unwrap_or_default();
        match &self.revision {
            Some(revision) => format!("{name}@{revision}"),
            None => name.to_owned(),
        }
    }
}

/// Which parameters are trainable. A classification head is always trainable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Tuning {
    /// Full fine-tuning: all parameters.
    Full,
    /// The classification head only.
    Head,
    /// BitFit: biases and the classification head.
    Bitfit,
    /// LoRA: low-rank updates of linear layers, and the classification head.
    Lora(LoraSettings),
    /// (IA)³: scaling vectors for keys, values and inner activations, and the classification head.
    Ia3(Ia3Settings),
    /// Bottleneck adapters after attention and feed-forward layers, and the classification head.
    Adapter(AdapterSettings),
    /// Prompt tuning: the embeddings of virtual tokens before every text, and the classification
    /// head.
    Prompt(PromptSettings),
}

impl Tuning {
    /// The value's name in a run file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Head => "head",
            Self::Bitfit => "bitfit",
            Self::Lora(_) => "lora",
            Self::Ia3(_) => "ia3",
            Self::Adapter(_) => "adapter",
            Self::Prompt(_) => "prompt",
        }
    }

    /// Whether training adds parameters and keeps those of the base model's blocks frozen.
    pub fn leaves_base(&self) -> bool {
        matches!(self, Self::Lora(_) | Self::Ia3(_) | Self::Adapter(_) | Self::Prompt(_))
    }
}

/// Hyperparameters of LoRA.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoraSettings {
    /// Rank of the update B A, from 1 to 4096; 8 by default.
    pub rank: usize,
    /// Scale of the update, which is multiplied by alpha / rank (alpha / √rank with rsLoRA); 16 by
    /// default.
    pub alpha: f64,
    /// Dropout probability before A, in effect only with `training.dropout`; 0 by default.
    pub dropout: f32,
    /// Names of the adapted linear layers, as suffixes of their paths, or `"all-linear"` for all
    /// layers of the blocks; by default the queries and values, or the fused layer that contains
    /// them (GPT-2 `c_attn`, ModernBERT `Wqkv`, Phi-3 `qkv_proj` and `o_proj`). Also accepts parts
    /// of `c_attn`, such as `c_attn.query`, and a language model's `lm_head`.
    #[serde(deserialize_with = "one_or_more")]
    pub targets: Vec<String>,
    /// Indices of the adapted transformer blocks, from 0; all blocks by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<usize>>,
    /// Whether to use rsLoRA, which scales the update by alpha / √rank; false by default.
    #[serde(rename = "rslora", alias = "rank_stabilized", alias = "rank_stabilised")]
    pub rank_stabilized: bool,
    /// Whether to use DoRA, which also trains the magnitude of each output's weights, on whole
    /// layers only; false by default. As in peft, the norm of the direction counts as a constant.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dora: bool,
    /// Whether A keeps its initial values and only B is trained (FFA-LoRA), which halves the number
    /// of coordinates that get noise; false by default.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub freeze_a: bool,
    /// Initial values of A; `uniform` by default.
    #[serde(skip_serializing_if = "InitialA::is_uniform")]
    pub init: InitialA,
    /// Learning rate of B relative to that of A (LoRA+); 1 by default.
    #[serde(skip_serializing_if = "is_one")]
    pub b_rate: f64,
    /// Whether the token embeddings, and an output layer tied to them, are also trained; false by
    /// default.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub embeddings: bool,
}

impl Default for LoraSettings {
    fn default() -> Self {
        Self {
            rank: 8,
            alpha: 16.0,
            dropout: 0.0,
            targets: Vec::new(),
            layers: None,
            rank_stabilized: false,
            dora: false,
            freeze_a: false,
            init: InitialA::Uniform,
            b_rate: 1.0,
            embeddings: false,
        }
    }
}

/// Initial values of LoRA's A. B is zero, so they do not change the model's outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitialA {
    /// Uniformly random, as in peft.
    #[default]
    Uniform,
    /// The leading right singular vectors of the base model's weight, with the norm that random
    /// values would have.
    Singular,
}

impl InitialA {
    fn is_uniform(&self) -> bool {
        *self == Self::Uniform
    }
}

fn is_one(rate: &f64) -> bool {
    *rate == 1.0
}

impl LoraSettings {
    /// Factor by which the update is multiplied.
    pub fn scale(&self) -> f32 {
        let rank = self.rank as f64;
        (if self.rank_stabilized { self.alpha / rank.sqrt() } else { self.alpha / rank }) as f32
    }
}

/// Hyperparameters of (IA)³. If both lists are empty, the keys, the values and the inputs of the
/// feed-forward network's down-projection are scaled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ia3Settings {
    /// Linear layers whose outputs are scaled, as suffixes of their paths; by default the keys and
    /// values.
    pub targets: Vec<String>,
    /// Linear layers whose inputs are scaled, as suffixes of their paths; by default the
    /// down-projections of the feed-forward networks.
    pub feed_forward: Vec<String>,
}

/// Hyperparameters of bottleneck adapters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdapterSettings {
    /// Width of the bottleneck; 64 by default.
    pub size: usize,
    /// Activation of the bottleneck, by its Hugging Face name; `gelu` by default.
    pub activation: String,
}

impl Default for AdapterSettings {
    fn default() -> Self {
        Self { size: 64, activation: "gelu".into() }
    }
}

/// Hyperparameters of prompt tuning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PromptSettings {
    /// Number of virtual tokens, from 1 to 1024; 20 by default. A text has as many positions fewer.
    pub tokens: usize,
}

impl Default for PromptSettings {
    fn default() -> Self {
        Self { tokens: 20 }
    }
}
