//! `[privacy.local]` and `[privacy.mvg]`: local DP, with perturbed embeddings.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;

/// `[privacy.local]`: local DP. Defaults depend on method and mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalSection {
    /// The layer at which noise is added: embeddings, after a number of blocks, output or pooler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<NoiseLayer>,
    /// Which rows of a sequence are released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<ReleasedRows>,
    /// How the norm of an embedding is bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bounding>,
    /// How often an embedding is released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseKind>,
    /// The encoder of the hidden states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder: Option<EncoderKind>,
    /// Widths of the encoder's layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dims: Option<Vec<usize>>,
    /// The activation function of an autoencoder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<EncoderActivation>,
    /// Public text that encoder and centre are fitted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<PublicFile>,
    /// Whether the number of tokens is hidden, by padding every sequence to the same length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<Lengths>,
    /// The reading of a published noise multiplier, in paper mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_is: Option<NoiseIs>,
    /// The batch that the papers' accountant takes examples to be hidden in, in paper mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounted_batch: Option<AccountedBatch>,
    /// ε of the labels' randomised response; 0 if labels are public. By default half of the ε that
    /// the adaptation leaves, divided by the examples of a unit, and at most 2; in paper mode 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_epsilon: Option<f64>,
    /// How the part above the noise is trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learn: Option<LearnerKind>,
    /// Fine-tuning of the whole model before anything is perturbed: on public labelled data, or on
    /// the private examples by DP-SGD with a share of ε.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapt: Option<AdaptSection>,
}

/// The layer at which noise is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseLayer {
    /// After this many transformer blocks; 0 is after the embeddings.
    After(usize),
    /// After the last block and its normalisation, before the task head.
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
            /// As model folders of before 0.2.0 write it.
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

/// Which rows of a sequence are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum ReleasedRows {
    /// One row for each token.
    Tokens,
    /// The first token's row.
    First,
    /// The last token's row.
    Last,
    /// The mean over the tokens.
    Mean,
}

/// How the norm of an embedding is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bounding {
    /// Clipping: an embedding of norm above C is scaled down to C.
    Clip,
    /// Normalisation: every embedding is scaled to norm C.
    Normalise,
    /// No norm bound: a bounded activation keeps each column in an interval.
    Box,
}

/// How often an embedding is released, and how the noise of its releases is correlated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseKind {
    /// Once; every epoch uses the same release.
    #[default]
    Once,
    /// In every epoch, with correlated noise that decreases: all releases cost what the last costs.
    Path,
    /// In every epoch, with independent noise.
    Fresh,
}

/// The encoder of the hidden states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderKind {
    /// No encoder: hidden states are released.
    None,
    /// A random orthogonal projection, which needs no data.
    Orthogonal,
    /// A projection to the principal components of public text.
    Pca,
    /// A stacked autoencoder fitted on public text.
    Autoencoder,
    /// A stacked autoencoder trained on the private examples: paper mode only.
    Trained,
}

/// The activation function of an autoencoder: after each projection but the decoder's last, whose
/// outputs must reach as far as hidden states do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderActivation {
    /// tanh x.
    Tanh,
    /// x · Φ(x).
    Gelu,
    /// None: a linear autoencoder.
    None,
}

/// Whether the number of tokens of a text is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lengths {
    /// Hidden by padding: every text has as many rows, zero after its last token.
    Hidden,
    /// Visible; as published, a text is padded before the model reads it, and the norm is taken
    /// over the rows of padding too.
    Padded,
    /// Visible, and assumed to be public.
    Public,
}

/// What a published noise multiplier is a multiple of: the papers allow both readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseIs {
    /// The norm bound C.
    #[default]
    Norm,
    /// The sensitivity 2C.
    Sensitivity,
}

/// The batch that the papers' accountant takes examples to be hidden in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountedBatch {
    /// That of training, as in EW-FT: a sampling rate of B/|D| in |D|/B steps an epoch.
    #[default]
    Training,
    /// One example, as in DP-Forward's code: a sampling rate of 1/|D| in |D| steps an epoch.
    One,
}

/// How the part above the noise is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearnerKind {
    /// A linear discriminant in closed form, corrected for the known noise.
    Discriminant,
    /// By gradients, on embeddings that are calibrated to the known noise (regression calibration).
    Gradient,
    /// By gradients on the perturbed embeddings, as published.
    Plain,
}

/// A file of public data: its path, or a table with its columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublicFile {
    /// Path of the file.
    pub file: PathBuf,
    /// Its columns of text; by default those of the training file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Vec<String>>,
    /// Its column of labels; by default that of the training file.
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
    /// Public labelled data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<PublicFile>,
    /// The share of ε that DP-SGD on the private examples may cost by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Number of epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u32>,
    /// Batch size; the expected one under Poisson sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// The largest learning rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
}

impl AdaptSection {
    /// Number of epochs: two by default.
    pub fn epochs(&self) -> u32 {
        self.epochs.unwrap_or(2)
    }

    /// Batch size; by default larger for DP-SGD, which needs large batches.
    pub fn batch(&self) -> u64 {
        self.batch.unwrap_or(if self.share.is_some() { 1024 } else { 32 })
    }

    /// The largest learning rate; the default depends on the kind of adaptation.
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate.unwrap_or(if self.share.is_some() { 5e-4 } else { 5e-5 })
    }
}

/// `[privacy.mvg]`: hyperparameters of per-attribute MVG.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MvgSection {
    /// Width of the sanitisation layer.
    pub width: usize,
    /// k: position of the smallest budget, from −1 (beginning of the sequence) to 1 (end).
    pub shift: f64,
    /// v: width of the bell of budgets, in the same unit.
    pub spread: f64,
    /// The smallest per-token ε.
    pub epsilon_min: f64,
    /// The largest per-token ε.
    pub epsilon_max: f64,
    /// The attention that tokens' contributions are computed from.
    pub attention: AttentionSource,
    /// ε of a noisy attention map (`atten-dp`).
    pub attention_epsilon: f64,
    /// Expected number of examples that the attention map is the mean of.
    pub attention_examples: usize,
    /// The classifier that reads the noisy columns, in paper mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<MvgHead>,
}

/// The classifier that reads MVG's noisy columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MvgHead {
    /// A new linear layer from the columns to the classes, as published.
    #[default]
    Linear,
    /// A linear layer from the columns to hidden states, and the model's own task head.
    Pretrained,
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
            head: None,
        }
    }
}

/// The attention that tokens' contributions are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionSource {
    /// The private examples' mean attention without noise: paper mode only.
    Raw,
    /// The private examples' mean attention with noise, recorded in the ledger.
    AttenDp,
    /// The attention of positions without text: no data are used.
    Position,
}
