//! `[privacy.forward]` and `[privacy.mvg]`: noise on what records' owners send.

mod check;
mod public;
mod settings;

use crate::mechanism::forward::Release;
use crate::model::layer::sanitiser::{Bounding, Spot};
pub use public::{AdaptPlan, PublicFile};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
pub use settings::ForwardSettings;

/// Where the noise is, and what is done about it. What is left out depends on method and mode:
/// [`Plan::forward`](super::Plan::forward).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardPlan {
    /// After the embeddings, after so many blocks, or at the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<After>,
    /// Which rows of a sequence are released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<RowsName>,
    /// How the norm is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bounding>,
    /// How often a record is released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// Where the encoder comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder: Option<EncoderName>,
    /// Widths of the encoder's layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dims: Option<Vec<usize>>,
    /// Public text, to fit encoder and centre on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<PublicFile>,
    /// Whether lengths are hidden, by as many rows for every sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<Lengths>,
    /// What a noise multiplier is multiplied by, in paper mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_is: Option<NoiseIs>,
    /// ε of the labels' randomised response; 0 for labels that are public. By default half of what
    /// an adaptation leaves of ε (over the records of a unit) and at most 2, in paper mode 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_epsilon: Option<f64>,
    /// How the part above the noise learns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learn: Option<Learn>,
    /// Lets everything, also what is below the noise, learn first: from public labelled data, or
    /// from the records themselves by DP-SGD with a share of ε.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapt: Option<AdaptPlan>,
}

/// Where the noise is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After(pub Spot);

impl Serialize for After {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            Spot::Output => serializer.serialize_str("output"),
            Spot::After(0) => serializer.serialize_str("embeddings"),
            Spot::After(blocks) => serializer.serialize_u64(blocks as u64),
        }
    }
}

impl<'de> Deserialize<'de> for After {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Name(String),
            Blocks(usize),
        }
        let wrong = || {
            serde::de::Error::custom("after is \"embeddings\", \"output\" or a number of blocks")
        };
        match Written::deserialize(deserializer).map_err(|_| wrong())? {
            Written::Name(name) if name == "output" => Ok(Self(Spot::Output)),
            Written::Name(name) if name == "embeddings" => Ok(Self(Spot::After(0))),
            Written::Name(_) => Err(wrong()),
            Written::Blocks(blocks) => Ok(Self(Spot::After(blocks))),
        }
    }
}

/// Rows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum RowsName {
    /// One for each token.
    Tokens,
    /// That of the first token.
    First,
    /// That of the last token.
    Last,
    /// The mean over the tokens.
    Mean,
}

/// Where an encoder comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderName {
    /// There is none: hidden states are released.
    None,
    /// Directions drawn at random, orthogonal to each other.
    Orthogonal,
    /// The directions in which public text varies most.
    Pca,
    /// A stacked autoencoder that was fitted on public text.
    Autoencoder,
    /// A stacked autoencoder that learns from the records themselves: paper mode only.
    Trained,
}

/// Whether the number of tokens shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lengths {
    /// It does not.
    Hidden,
    /// It does, and is taken to be public.
    Public,
}

/// What a published noise multiplier is multiplied by: the texts leave both readings open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseIs {
    /// By the norm C.
    #[default]
    Norm,
    /// By the sensitivity 2C.
    Sensitivity,
}

/// How the part above the noise learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Learn {
    /// In closed form: a linear classifier that knows the noise.
    Discriminant,
    /// By gradients, on rows that were calibrated to the noise.
    Gradient,
    /// By gradients on the noisy rows as they are, as published.
    Plain,
}

/// Budgets by token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MvgPlan {
    /// Columns of the sanitiser.
    pub width: usize,
    /// k: where in a sequence the smallest budget is.
    pub shift: f64,
    /// v: how wide the dip is.
    pub spread: f64,
    /// The smallest budget.
    pub epsilon_min: f64,
    /// The largest.
    pub epsilon_max: f64,
    /// Whose attention contributions are computed from.
    pub attention: AttentionName,
    /// ε of the attention map, where it is released.
    pub attention_epsilon: f64,
    /// Examples that the map is the mean of.
    pub attention_examples: usize,
}

impl Default for MvgPlan {
    fn default() -> Self {
        Self {
            width: 700,
            shift: 0.0,
            spread: 0.3,
            epsilon_min: 1.0,
            epsilon_max: 10.0,
            attention: AttentionName::Position,
            attention_epsilon: 1.0,
            attention_examples: 2000,
        }
    }
}

/// Whose attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionName {
    /// The records' own, without noise: paper mode only.
    Raw,
    /// The records' own, with noise, which is paid for.
    AttenDp,
    /// That of positions without text: no data are used.
    Position,
}
