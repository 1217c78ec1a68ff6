//! `[privacy.forward]` and `[privacy.mvg]`: noise on what records' owners send.

use super::{Method, ModeName, Plan, TaskName};
use crate::data::Task;
use crate::mechanism::forward::Release;
use crate::mechanism::forward::mvg::Budgets;
use crate::model::layer::sanitiser::{Bounding, Rows, Spot};
use crate::model::tuning::Tuning;
use crate::train::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;

/// Where the noise is, and what is done about it. What is left out depends on method and mode: [`Plan::forward`].
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
    /// ε of the labels' randomised response; 0 for labels that are public. By default half of ε (over the records of a unit) and at most 2, in paper mode 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_epsilon: Option<f64>,
    /// How the part above the noise learns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learn: Option<Learn>,
    /// Lets everything, also what is below the noise, learn first: from public labelled data, or from the records themselves by DP-SGD with a share of ε.
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
        let wrong = || serde::de::Error::custom("after is \"embeddings\", \"output\" or a number of blocks");
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

/// A file of public data: its path, or a table with its columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublicFile {
    /// The file.
    pub file: PathBuf,
    /// Its columns of text; by default those of the training file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Vec<String>>,
    /// Its column of labels; by default that of the training file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl<'de> Deserialize<'de> for PublicFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
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
            serde::de::Error::custom("public is \"file\" or { file = \"file\", text = [\"column\"] }")
        })? {
            Written::Path(file) => Ok(Self { file, text: None, label: None }),
            Written::Table(Table { file, text, label }) => Ok(Self { file, text, label }),
        }
    }
}

/// Learning before anything is released: from public data, or from the records with a share of the budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaptPlan {
    /// Public labelled data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<PublicFile>,
    /// The share of ε that DP-SGD on the records may cost by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Passes over the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u32>,
    /// Examples in a step; of records, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// The largest learning rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
}

impl AdaptPlan {
    /// Passes over the data: two, unless the run file says otherwise.
    pub fn epochs(&self) -> u32 {
        self.epochs.unwrap_or(2)
    }

    /// Examples in a step: noise asks for many.
    pub fn batch(&self) -> u64 {
        self.batch.unwrap_or(if self.share.is_some() { 1024 } else { 32 })
    }

    /// The largest learning rate.
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate.unwrap_or(if self.share.is_some() { 5e-4 } else { 5e-5 })
    }
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

/// `[privacy.forward]` with nothing left out.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardSettings {
    pub spot: Spot,
    pub rows: Rows,
    pub bounding: Bounding,
    pub norm: f32,
    pub release: Release,
    pub encoder: EncoderName,
    pub dims: Vec<usize>,
    pub noise_is: NoiseIs,
    pub label_epsilon: Option<f64>,
    pub learn: Learn,
}

impl Plan {
    /// Whether records are perturbed, rather than gradients.
    pub fn is_forward(&self) -> bool {
        matches!(self.privacy.method, Method::DpForward | Method::EwFt | Method::Mvg)
    }

    /// What is meant where the run file says nothing.
    pub fn forward(&self) -> ForwardSettings {
        let given = &self.privacy.forward;
        let paper = self.privacy.mode == ModeName::Paper;
        let mvg = self.privacy.method == Method::Mvg;
        let spot = given.after.map_or(Spot::Output, |after| after.0);
        let name = given.rows.unwrap_or(match (mvg, paper, spot) {
            (true, ..) => RowsName::First,
            (_, true, Spot::After(_)) => RowsName::Tokens,
            (_, true, Spot::Output) => RowsName::First,
            _ => RowsName::Mean,
        });
        let lengths = given.lengths.unwrap_or(if paper { Lengths::Public } else { Lengths::Hidden });
        let rows = match name {
            RowsName::Tokens if lengths == Lengths::Hidden => Rows::Tokens(Some(self.data.max_tokens)),
            RowsName::Tokens => Rows::Tokens(None),
            RowsName::First => Rows::First,
            RowsName::Last => Rows::Last,
            RowsName::Mean => Rows::Mean,
        };
        let usual = match (self.privacy.method, paper) {
            (Method::DpForward, _) => EncoderName::None,
            (_, true) => EncoderName::Trained,
            _ if given.public.is_some() => EncoderName::Pca,
            _ => EncoderName::Orthogonal,
        };
        let encoder = given.encoder.unwrap_or(usual);
        let dims = match (encoder, mvg) {
            (EncoderName::None, _) => Vec::new(),
            (_, true) => vec![self.privacy.mvg.width],
            _ => given.dims.clone().unwrap_or_else(|| vec![16]),
        };
        let one_row = !matches!(rows, Rows::Tokens(_));
        let closed_form = one_row && spot == Spot::Output && self.model.tuning == Tuning::Head;
        let learn = given.learn.unwrap_or(match (paper, closed_form) {
            (true, _) => Learn::Plain,
            (_, true) => Learn::Discriminant,
            _ => Learn::Gradient,
        });
        let bounding = match (mvg, paper) {
            (true, true) => Bounding::Box,
            _ => given.bound.unwrap_or(Bounding::Normalise),
        };
        let norm = match self.privacy.clip {
            crate::gradient::Clip::Flat(bound) => bound as f32,
            _ => 1.0,
        };
        // Beyond an ε of 2 labels tell the truth seven times in eight, and the text has more use for the rest.
        let share = 0.5 * self.privacy.epsilon.unwrap_or(4.0) / self.records_per_unit() as f64;
        let usual = if paper { 0.0 } else { share.min(2.0) };
        let label_epsilon = Some(given.label_epsilon.unwrap_or(usual)).filter(|&epsilon| epsilon > 0.0);
        let release = given.release.unwrap_or(if paper { Release::Fresh } else { Release::Once });
        ForwardSettings {
            spot,
            rows,
            bounding,
            norm,
            release,
            encoder,
            dims,
            noise_is: given.noise_is.unwrap_or_default(),
            label_epsilon,
            learn,
        }
    }

    /// The budgets of the tokens.
    pub fn budgets(&self) -> Budgets {
        let mvg = &self.privacy.mvg;
        Budgets { shift: mvg.shift, spread: mvg.spread, least: mvg.epsilon_min, most: mvg.epsilon_max }
    }

    /// The task of a public file: without labels unless they are wanted.
    pub fn public_task(&self, public: &PublicFile, labelled: bool) -> Task {
        let text = public.text.clone().unwrap_or_else(|| self.data.text.clone());
        let label = public.label.clone().unwrap_or_else(|| self.data.label.clone());
        Task::Classification { text, label: labelled.then_some(label) }
    }

    /// Refuses what cannot be meant of a forward method.
    pub(super) fn check_forward(&self) -> Result<()> {
        if self.privacy.forward != ForwardPlan::default() && !self.is_forward() {
            return Err(Error::plan(
                "[privacy.forward] is for the methods dp-forward, ew-ft and mvg; remove it",
            ));
        }
        if self.privacy.mvg != MvgPlan::default() && self.privacy.method != Method::Mvg {
            return Err(Error::plan("[privacy.mvg] is for the method mvg; remove it"));
        }
        if !self.is_forward() {
            return Ok(());
        }
        let settings = self.forward();
        let given = &self.privacy.forward;
        let paper = self.privacy.mode == ModeName::Paper;
        let wrong = |sentence: &str| Err(Error::plan(sentence));
        if self.data.task != TaskName::Classification {
            return wrong(
                "noise on embeddings is for classification: a language model's targets are the private text itself, which would be released beside it",
            );
        }
        if !matches!(self.privacy.clip, crate::gradient::Clip::Flat(_) | crate::gradient::Clip::Automatic) {
            return wrong("privacy.clip of a forward method is a number: the norm of a record's rows");
        }
        let mvg_as_published = paper && self.privacy.method == Method::Mvg;
        if settings.bounding == Bounding::Box && !mvg_as_published {
            return wrong(
                "privacy.forward.bound is \"normalise\" or \"clip\": a box does not bound the norm of a record",
            );
        }
        if self.training.epochs > 65_536 {
            return wrong("methods that perturb records take at most 65536 epochs");
        }
        if !(self.privacy.step_distance.is_finite() && self.privacy.step_distance > 0.0) {
            return wrong("privacy.step_distance must be above 0");
        }
        if self.training.dropout && !paper {
            return wrong(
                "dropout below the noise would make a record differ between releases; leave training.dropout out",
            );
        }
        if settings.dims.contains(&0) || (settings.encoder != EncoderName::None && settings.dims.is_empty()) {
            return wrong("privacy.forward.dims are widths above 0, such as [64] or [256, 64, 4]");
        }
        if matches!(settings.encoder, EncoderName::Orthogonal | EncoderName::Pca) && settings.dims.len() != 1
        {
            return wrong(
                "a projection has one width, such as dims = [64]; encoder = \"autoencoder\" stacks several",
            );
        }
        if matches!(settings.encoder, EncoderName::Pca | EncoderName::Autoencoder) && given.public.is_none() {
            return wrong(
                "an encoder that is fitted needs public text: public = \"file\", or encoder = \"orthogonal\", which needs none",
            );
        }
        if settings.encoder == EncoderName::Trained && !paper && given.adapt.is_none() {
            return wrong(
                "an encoder that learns from the records voids the guarantee; give it public data by adapt, or choose mode = \"paper\"",
            );
        }
        if self.privacy.method == Method::EwFt && settings.encoder == EncoderName::None {
            return wrong(
                "ew-ft releases what an encoder makes of a record; without one, the method is dp-forward",
            );
        }
        if settings.learn == Learn::Discriminant && settings.release != Release::Once {
            return wrong("learn = \"discriminant\" looks at each record once; leave release at \"once\"");
        }
        if given.adapt.is_some() && !matches!(self.model.tuning, Tuning::Head | Tuning::Full) {
            return wrong("adapt changes all of the model, so model.tuning must be \"head\" or \"full\"");
        }
        if settings.learn == Learn::Discriminant
            && (matches!(settings.rows, Rows::Tokens(_))
                || settings.spot != Spot::Output
                || self.model.tuning != Tuning::Head)
        {
            return wrong(
                "learn = \"discriminant\" is for one row at the output and model.tuning = \"head\"; deeper parts learn by \"gradient\"",
            );
        }
        if self.privacy.noise_multiplier.is_some() {
            return wrong(
                "forward methods are calibrated to epsilon; give that in place of noise_multiplier",
            );
        }
        if let Some(adapt) = &given.adapt {
            let rate = adapt.learning_rate();
            if !(adapt.epochs() > 0 && adapt.batch() > 0 && rate.is_finite() && rate > 0.0) {
                return wrong("adapt needs epochs, batch and learning_rate above 0");
            }
            if adapt.public.is_some() == adapt.share.is_some() {
                return wrong(
                    "adapt learns from public data, { public = \"file\" }, or from the records, { share = 0.5 }; name one of them",
                );
            }
            if adapt.share.is_some_and(|share| !(share > 0.0 && share < 1.0)) {
                return wrong(
                    "adapt.share must lie between 0 and 1: it is the part of epsilon that DP-SGD may cost",
                );
            }
            if adapt.share.is_some() && (paper || self.data.author.is_some()) {
                return wrong(
                    "adapt.share is for mode = \"proved\" and records that each are a unit of their own, without data.author",
                );
            }
            if adapt.share.is_some() && settings.encoder == EncoderName::Trained {
                return wrong(
                    "DP-SGD adapts what is below the encoder, not the encoder; choose encoder = \"orthogonal\" or \"pca\"",
                );
            }
        }
        if given.label_epsilon.is_some_and(|e| !(e.is_finite() && e >= 0.0)) {
            return wrong("label_epsilon must be a number of at least 0");
        }
        let labels = settings.label_epsilon.map(|e| e * self.records_per_unit() as f64);
        if !paper && labels >= self.privacy.epsilon {
            return wrong(
                "the labels take all of epsilon (label_epsilon for each record of a unit); leave some for the text",
            );
        }
        let mvg = &self.privacy.mvg;
        if self.privacy.method == Method::Mvg {
            let sound = mvg.width > 0
                && mvg.shift.is_finite()
                && mvg.spread > 0.0
                && mvg.epsilon_min > 0.0
                && mvg.epsilon_max >= mvg.epsilon_min
                && mvg.epsilon_max.is_finite()
                && mvg.attention_epsilon > 0.0
                && mvg.attention_examples > 0;
            if !sound {
                return wrong(
                    "[privacy.mvg] needs width, spread, attention_* above 0 and 0 < epsilon_min <= epsilon_max",
                );
            }
            if mvg.attention == AttentionName::Raw && !paper {
                return wrong(
                    "attention = \"raw\" uses the records without noise; choose \"position\" or \"atten-dp\", or mode = \"paper\"",
                );
            }
            if !paper
                && mvg.attention == AttentionName::AttenDp
                && Some(mvg.attention_epsilon) >= self.privacy.epsilon
            {
                return wrong(
                    "the attention map takes all of epsilon; lower attention_epsilon, or choose attention = \"position\"",
                );
            }
            if settings.encoder == EncoderName::None {
                return wrong(
                    "mvg releases the outputs of a sanitisation layer; its encoder cannot be \"none\"",
                );
            }
            if !matches!(settings.rows, Rows::First | Rows::Last) {
                return wrong("mvg releases one token's row: rows is \"first\" or \"last\"");
            }
        }
        Ok(())
    }
}
