//! `[privacy.paper]`: what only replications of the papers set.

use serde::{Deserialize, Serialize};

/// `[privacy.paper]`: readings of the papers, for replications. A run of your own needs none of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaperSection {
    /// Interpretation of a published noise multiplier; `norm` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_is: Option<NoiseIs>,
    /// Batch in which the papers' accountant assumes that an example is hidden; `training` by
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounted_batch: Option<AccountedBatch>,
    /// Whether MVG's attention map is averaged over heads; `averaged` by default in paper mode and
    /// `separate` in proved mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_heads: Option<AttentionHeads>,
    /// Classifier that reads MVG's noisy columns; `linear` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<MvgHead>,
    /// Coordinates that Rap-FT ranks together; `global` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranking: Option<MaskRanking>,
    /// Whether a layer's bias receives its share of the relevance, as published (Z in equation 4);
    /// by default only in paper mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias_in_z: Option<bool>,
    /// How relevance passes an activation function; `positive` in paper mode and `unchanged` in
    /// proved mode by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activations: Option<ActivationRule>,
}

impl PaperSection {
    /// Whether no key is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a published noise multiplier is a multiple of; the papers allow both readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseIs {
    /// The norm bound C.
    #[default]
    Norm,
    /// The sensitivity 2C.
    Sensitivity,
}

/// Batch in which the papers' accountant assumes that an example is hidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountedBatch {
    /// The training batch, as in EW-FT: a sampling rate of B/|D| and |D|/B steps per epoch.
    #[default]
    Training,
    /// A single example, as in DP-Forward's code: a sampling rate of 1/|D| and |D| steps per epoch.
    One,
}

/// How the heads of an attention map are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionHeads {
    /// The mean over the heads weighs all values, as published.
    Averaged,
    /// Each head weighs its own values.
    Separate,
}

/// The classifier that reads MVG's noisy columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MvgHead {
    /// A new linear layer from the columns to the classes, as published.
    #[default]
    Linear,
    /// A linear layer from the columns to hidden states, followed by the model's own task head.
    Pretrained,
}

/// Coordinates that are ranked by relevance together. The paper's Algorithm 1 ranks all of them,
/// and its text those of each layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaskRanking {
    /// All coordinates.
    #[default]
    Global,
    /// Those of each parameter tensor by itself.
    PerLayer,
}

/// How relevance passes an activation function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActivationRule {
    /// Unchanged, so that no relevance is lost.
    #[default]
    Unchanged,
    /// Equation 7: only where the input of the activation is positive, to replicate the paper.
    Positive,
}
