//! `[model]`: the base model and which of its parameters are trainable.

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
    /// Which parameters are trainable.
    #[serde(default = "full")]
    pub tuning: Tuning,
}

fn full() -> Tuning {
    Tuning::Full
}

impl ModelSection {
    /// Path or hub name.
    pub fn name(&self) -> &str {
        self.path.as_deref().or(self.hub.as_deref()).unwrap_or_default()
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
            Self::Adapter(_) => "adapter",
        }
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
    /// Names of the linear layers, as the ends of their paths; empty for the architecture's usual
    /// ones.
    pub targets: Vec<String>,
    /// Scale by alpha / √rank.
    pub rank_stabilised: bool,
}

impl Default for LoraSettings {
    fn default() -> Self {
        Self { rank: 8, alpha: 16.0, dropout: 0.0, targets: Vec::new(), rank_stabilised: false }
    }
}

impl LoraSettings {
    /// The scale of the update.
    pub fn scale(&self) -> f32 {
        let rank = self.rank as f64;
        (if self.rank_stabilised { self.alpha / rank.sqrt() } else { self.alpha / rank }) as f32
    }
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
