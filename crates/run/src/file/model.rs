//! `[model]`: the base model and which of its parameters are trainable.

use super::data::one_or_more;
use serde::{Deserialize, Serialize};

/// `[model]`: the base model and which of its parameters are trainable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSection {
    /// Folder of the base model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Name of the base model on the Hugging Face hub, in place of a folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// Branch, tag or commit of the model on the hub; by default the branch main.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Which parameters are trainable.
    #[serde(default = "full")]
    pub tuning: Tuning,
    /// How the frozen weights of linear layers are rounded in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantise: Option<Quantise>,
}

/// How frozen weights are rounded in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantise {
    /// 4-bit NormalFloat with double quantisation, as in QLoRA.
    Nf4,
}

fn full() -> Tuning {
    Tuning::Full
}

impl ModelSection {
    /// Path, or hub name with its revision: `owner/model@revision`.
    pub fn name(&self) -> String {
        let name = self.path.as_deref().or(self.hub.as_deref()).unwrap_or_default();
        match &self.revision {
            Some(revision) => format!("{name}@{revision}"),
            None => name.to_owned(),
        }
    }
}

/// Which parameters are trainable. A classification head always is trainable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Tuning {
    /// Full fine-tuning: every parameter.
    Full,
    /// The classification head alone.
    Head,
    /// BitFit: biases, and the classification head.
    Bitfit,
    /// LoRA: low-rank updates of linear layers, and the classification head.
    Lora(LoraSettings),
    /// (IA)³: factors of keys, values and inner activations, and the classification head.
    Ia3(Ia3Settings),
    /// Bottleneck adapters after attention and feed-forward, and the classification head.
    Adapter(AdapterSettings),
}

impl Tuning {
    /// The name in a run file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Head => "head",
            Self::Bitfit => "bitfit",
            Self::Lora(_) => "lora",
            Self::Ia3(_) => "ia3",
            Self::Adapter(_) => "adapter",
        }
    }

    /// Whether training adds parameters and leaves those of the base model's blocks as they are.
    pub fn leaves_base(&self) -> bool {
        matches!(self, Self::Lora(_) | Self::Ia3(_) | Self::Adapter(_))
    }
}

/// Hyperparameters of LoRA.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoraSettings {
    /// Rank of the update B A.
    pub rank: usize,
    /// The update is scaled by alpha / rank, or by alpha / √rank if rank-stabilised.
    pub alpha: f64,
    /// Dropout probability before A.
    pub dropout: f32,
    /// Names of the linear layers, as the ends of their paths, or `all-linear`; empty for the
    /// architecture's usual ones.
    #[serde(deserialize_with = "one_or_more")]
    pub targets: Vec<String>,
    /// Transformer blocks that are adapted, from 0; all of them if there is no list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<usize>>,
    /// rsLoRA: scale by alpha / √rank.
    #[serde(rename = "rslora", alias = "rank_stabilised")]
    pub rank_stabilised: bool,
    /// DoRA: the weight's magnitude of each output is trained besides its direction.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dora: bool,
    /// Whether the token embeddings are trained too, and with them an output layer that is tied to
    /// them.
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
            rank_stabilised: false,
            dora: false,
            embeddings: false,
        }
    }
}

impl LoraSettings {
    /// The scale of the update.
    pub fn scale(&self) -> f32 {
        let rank = self.rank as f64;
        (if self.rank_stabilised { self.alpha / rank.sqrt() } else { self.alpha / rank }) as f32
    }
}

/// Hyperparameters of (IA)³. Without any, keys and values and the inputs of the feed-forward
/// network's down-projection have factors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ia3Settings {
    /// Linear layers whose outputs are multiplied, as the ends of their paths.
    pub targets: Vec<String>,
    /// Linear layers whose inputs are multiplied, as the ends of their paths.
    pub feed_forward: Vec<String>,
}

/// Hyperparameters of bottleneck adapters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdapterSettings {
    /// Width of the bottleneck.
    pub size: usize,
    /// Activation of the bottleneck, by its Hugging Face name.
    pub activation: String,
}

impl Default for AdapterSettings {
    fn default() -> Self {
        Self { size: 64, activation: "gelu".into() }
    }
}
