//! `[privacy.local]` and `[privacy.mvg]`: local DP with perturbed embeddings.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;

/// `[privacy.local]`: settings of local DP. Defaults depend on the method and the mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalSection {
    /// Layer at which noise is added: the embeddings, after a number of blocks, the output, or the
    /// pooler of the task head; `output` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<NoiseLayer>,
    /// Rows of a sequence that are released; by default `first` for MVG and at the pooler, and
    /// otherwise `mean` in proved mode, `first` at the output and `tokens` elsewhere in paper mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<ReleasedRows>,
    /// How the norm of an embedding is bounded; `normalize` by default (`box` for MVG in paper
    /// mode).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bounding>,
    /// How often an embedding is released; `once` by default in proved mode and `fresh` in paper
    /// mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseKind>,
    /// Encoder of the hidden states; by default `none` for DP-Forward, `trained` for other methods
    /// in paper mode, `pca` for EW-FT with public text, and `orthogonal` otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder: Option<EncoderKind>,
    /// Widths of the encoder's layers; `[16]` by default (for MVG its own width).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dims: Option<Vec<usize>>,
    /// Activation function of an autoencoder, after each projection but the decoder's last; by
    /// default `gelu` between layers in proved mode and `tanh` in paper mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<EncoderActivation>,
    /// Public text on which the encoder and the center are fitted; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<PublicFile>,
    /// Whether the number of tokens is hidden by padding every sequence to the same length;
    /// `hidden` by default in proved mode and `padded` in paper mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<Lengths>,
    /// ε of the randomized response on labels, where 0 means that labels are public; by default
    /// half of the ε left after adaptation, divided by the number of examples per unit and capped
    /// at 2, and 0 in paper mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_epsilon: Option<f64>,
    /// How the part of the model above the noise is trained; by default `plain` in paper mode,
    /// `discriminant` for one row at the output with head tuning, and `gradient` otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learn: Option<LearnerKind>,
    /// Fine-tuning of the whole model before anything is perturbed, with tuning head or full; none
    /// by default. Uses either public labeled data or, in proved mode and without `author`, DP-SGD
    /// on the private examples with a share of ε.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapt: Option<AdaptSection>,
}

/// The layer at which noise is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseLayer {
    /// After this number of transformer blocks; 0 means after the embeddings.
    After(usize),
    /// After the last block and its normalization, before the task head.
    Output,
    /// After the task head's dense layer and its activation, before the classifier.
    Pooler,
}

impl Serialize for NoiseLayer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Output => serializer.serialize_str("output"),
            Self::Pooler => serializer.serialize_str("pooler"),
            Self::After(0) => serializer.serialize_str("embeddings"),
            Self::After(blocks) => serializer.serialize_u64(*blocks as u64),
        }
    }
}

impl<'de> Deserialize<'de> for NoiseLayer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Name(String),
            Blocks(usize),
            /// The format of model folders written before 0.2.0.
            Tagged {
                after: usize,
            },
        }
        let wrong = || {
            serde::de::Error::custom(
                "after is \"embeddings\", \"output\", \"pooler\" or a number of blocks",
            )
        };
        match Written::deserialize(deserializer).map_err(|_| wrong())? {
            Written::Name(name) if name == "output" => Ok(Self::Output),
            Written::Name(name) if name == "pooler" => Ok(Self::Pooler),
            Written::Name(name) if name == "embeddings" => Ok(Self::After(0)),
            Written::Name(_) => Err(wrong()),
            Written::Blocks(blocks) | Written::Tagged { after: blocks } => Ok(Self::After(blocks)),
        }
    }
}

/// Rows of a sequence to release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum ReleasedRows {
    /// One row per token.
    Tokens,
    /// Row of the first token.
    First,
    /// Row of the last token.
    Last,
    /// Mean over the tokens.
    Mean,
}

/// How the norm of an embedding is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bounding {
    /// Clipping: an embedding with norm above C is scaled down to C.
    Clip,
    /// Normalization: every embedding is scaled to norm C.
    Normalize,
    /// No norm bound: a bounded activation confines each column to an interval.
    Box,
}

/// How often an embedding is released, and how the noise of the releases is correlated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseKind {
    /// Once; every epoch uses the same release.
    #[default]
    Once,
    /// In every epoch, with correlated, decreasing noise: all releases together cost as much as the
    /// last one.
    Path,
    /// In every epoch, with independent noise.
    Fresh,
}

/// Encoder of the hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderKind {
    /// No encoder: the hidden states themselves are released.
    None,
    /// A random orthogonal projection, which needs no data.
    Orthogonal,
    /// A projection onto the principal components of public text.
    Pca,
    /// A stacked autoencoder fitted on public text.
    Autoencoder,
    /// A stacked autoencoder trained on the private examples: paper mode only.
    Trained,
}

/// Activation function of an autoencoder, applied after every projection except the decoder's last,
/// whose outputs must cover the full range of hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderActivation {
    /// tanh x.
    Tanh,
    /// x · Φ(x).
    Gelu,
    /// No activation: a linear autoencoder.
    None,
}

/// Whether the number of tokens in a text is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lengths {
    /// Hidden by padding: every text has the same number of rows, with zeros after its last token.
    Hidden,
    /// Visible; as published, a text is padded before the model reads it, and the norm also covers
    /// the padding rows.
    Padded,
    /// Visible, and assumed to be public.
    Public,
}

/// How the part of the model above the noise is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearnerKind {
    /// A closed-form linear discriminant, corrected for the known noise.
    Discriminant,
    /// By gradient descent on embeddings calibrated to the known noise (regression calibration).
    Gradient,
    /// By gradient descent on the perturbed embeddings, as published.
    Plain,
}

/// A public data file, given as a path or as a table that also names its columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublicFile {
    /// Path of the file; required.
    pub file: PathBuf,
    /// Its text columns; by default those of the training file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Vec<String>>,
    /// Its label column; by default that of the training file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl<'de> Deserialize<'de> for PublicFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Path(PathBuf),
            Table(Table),
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            file: PathBuf,
            text: Option<Vec<String>>,
            label: Option<String>,
        }
        match Written::deserialize(deserializer).map_err(|_| {
            serde::de::Error::custom(
                "public is \"file\" or { file = \"file\", text = [\"column\"] }",
            )
        })? {
            Written::Path(file) => Ok(Self { file, text: None, label: None }),
            Written::Table(Table { file, text, label }) => Ok(Self { file, text, label }),
        }
    }
}

/// Fine-tuning of the whole model before anything is perturbed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaptSection {
    /// Public labeled data, as `privacy.local.public`; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<PublicFile>,
    /// Fraction of ε that DP-SGD on the private examples may cost on its own; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Number of epochs; 2 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u32>,
    /// Batch size, which is the expected size under Poisson sampling; 32 by default, or 1024 with
    /// `share`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// Peak learning rate; 5e-5 by default, or 5e-4 with `share`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
}

impl AdaptSection {
    /// Number of epochs, with the default applied.
    pub fn epochs(&self) -> u32 {
        self.epochs.unwrap_or(2)
    }

    /// Batch size; the default is larger for DP-SGD, which needs large batches.
    pub fn batch(&self) -> u64 {
        self.batch.unwrap_or(if self.share.is_some() { 1024 } else { 32 })
    }

    /// Peak learning rate; the default depends on the kind of adaptation.
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate.unwrap_or(if self.share.is_some() { 5e-4 } else { 5e-5 })
    }
}

/// `[privacy.mvg]`: hyperparameters of per-attribute MVG.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MvgSection {
    /// Width of the sanitization layer; 700 by default.
    pub width: usize,
    /// Position k of the smallest budget, from −1 (start of the sequence) to 1 (end); 0 by default.
    pub shift: f64,
    /// Width v of the bell curve of budgets, in the same unit as `shift`; 0.3 by default.
    pub spread: f64,
    /// Smallest per-token ε; 1 by default.
    pub epsilon_min: f64,
    /// Largest per-token ε; 10 by default.
    pub epsilon_max: f64,
    /// Attention from which the tokens' contributions are computed; `position` by default.
    pub attention: AttentionSource,
    /// ε of the noisy attention map (`atten-dp`); 1 by default.
    pub attention_epsilon: f64,
    /// Expected number of examples averaged into the attention map; 2000 by default.
    pub attention_examples: usize,
}

impl Default for MvgSection {
    fn default() -> Self {
        Self {
            width: 700,
            shift: 0.0,
            spread: 0.3,
            epsilon_min: 1.0,
            epsilon_max: 10.0,
            attention: AttentionSource::Position,
            attention_epsilon: 1.0,
            attention_examples: 2000,
        }
    }
}

/// Attention from which the tokens' contributions are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionSource {
    /// Mean attention over the private examples, without noise (paper mode only).
    Raw,
    /// Mean attention over the private examples, with noise; recorded in the ledger.
    AttenDp,
    /// Attention computed from positions without text, which uses no data.
    Position,
}
