//! The tables of a run file, with their defaults.

use super::forward::{ForwardPlan, MvgPlan};
use crate::data::{Format, LongTexts};
use crate::explain::relevance::Initial;
use crate::gradient::Clip;
use crate::mechanism::allocation::{AdaclipSettings, Form};
use crate::model::tuning::Tuning;
use crate::train::optimiser;
use crate::train::rate::RateSchedule;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;

/// Which model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPlan {
    /// Its folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Or its name on the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// What of it is trained.
    #[serde(default = "full")]
    pub tuning: Tuning,
}

fn full() -> Tuning {
    Tuning::Full
}

/// The tasks by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum TaskName {
    /// A label for a text or a pair of texts.
    Classification,
    /// The next token of a text.
    LanguageModelling,
    /// What follows a prompt.
    Completion,
}

/// What it learns from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataPlan {
    /// What is to be learnt.
    pub task: TaskName,
    /// The private file.
    pub train: PathBuf,
    /// The file that the trained model is measured on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<PathBuf>,
    /// Their format, where the extension does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Column or columns of the text.
    #[serde(default, deserialize_with = "one_or_more")]
    pub text: Vec<String>,
    /// Column of the label.
    #[serde(default = "label")]
    pub label: String,
    /// The labels; found in the training file if they are not given, and then taken to be public.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Column of what is given (completion).
    #[serde(default = "prompt")]
    pub prompt: String,
    /// Column of what is to be written (completion).
    #[serde(default = "completion")]
    pub completion: String,
    /// Longest sequence.
    #[serde(default = "max_tokens")]
    pub max_tokens: usize,
    /// What becomes of longer texts in language modelling.
    #[serde(default)]
    pub long_texts: LongTexts,
    /// Column that names the author: all rows of an author are then protected together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The most examples of an author.
    #[serde(default = "most_per_author")]
    pub most_per_author: usize,
}

fn label() -> String {
    "label".into()
}
fn prompt() -> String {
    "prompt".into()
}
fn completion() -> String {
    "completion".into()
}
fn max_tokens() -> usize {
    128
}
fn most_per_author() -> usize {
    8
}

fn one_or_more<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMore {
        One(String),
        More(Vec<String>),
    }
    Ok(match OneOrMore::deserialize(deserializer)? {
        OneOrMore::One(name) => vec![name],
        OneOrMore::More(names) => names,
    })
}

/// How privacy is ensured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// It is not.
    None,
    /// Every unit's gradient is clipped, and Gaussian noise is added to their sum.
    DpSgd,
    /// DP-SGD with less noise on the parameters that matter more.
    Anadp,
    /// Two groups of parameters by relevance, each with a bound and noise of its own.
    RapFt,
    /// DP-SGD with noise in proportion to the root of the gradients that it hides.
    Adaclip,
    /// Noise on each record's embedding.
    DpForward,
    /// The same through an encoder, with noise that falls from epoch to epoch.
    EwFt,
    /// Noise on a sanitisation layer, in the direction of the tokens' budgets.
    Mvg,
}

/// Whether the printed ε is a theorem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeName {
    /// It is.
    #[default]
    Proved,
    /// The method as published, to compare with.
    Paper,
}

/// ANADP's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnadpPlan {
    /// How long sensitivity is remembered.
    pub beta1: f32,
    /// How long uncertainty is remembered.
    pub beta2: f32,
    /// How far weights are drawn to their mean.
    pub alpha: f32,
    /// The quantiles whose distance is the unit of importance.
    pub quantiles: (f64, f64),
    /// The least and the largest weight.
    pub range: (f32, f32),
    /// Importance of elements, or of rows and columns; by default factored for full tuning and
    /// element for all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
}

impl Default for AnadpPlan {
    fn default() -> Self {
        Self {
            beta1: 0.85,
            beta2: 0.85,
            alpha: 0.5,
            quantiles: (0.75, 0.25),
            range: (0.25, 4.0),
            form: None,
        }
    }
}

/// AdaClip's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaclipPlan {
    /// How long squares of gradients are remembered.
    pub beta: f32,
    /// How strongly noise follows them: 0 not at all, 0.5 for the least noise on the whole.
    pub exponent: f64,
    /// The least and the largest weight.
    pub range: (f32, f32),
}

impl Default for AdaclipPlan {
    fn default() -> Self {
        let AdaclipSettings { beta, exponent, range } = AdaclipSettings::default();
        Self { beta, exponent, range }
    }
}

/// Rap-FT's numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RapFtPlan {
    /// The share of the coordinates that count as weak: β.
    pub irrelevance: f64,
    /// Whose relevance; by default noised. In paper mode always the private examples', without
    /// noise.
    pub relevance: RelevanceSource,
    /// Examples that the map of public examples, or of private ones in paper mode, is the mean of.
    pub examples: usize,
    /// What of a generated text is explained.
    pub initial: Initial,
    /// α of the α–β rule; β is 1 − α.
    pub alpha: f32,
}

impl Default for RapFtPlan {
    fn default() -> Self {
        Self {
            irrelevance: 0.7,
            relevance: RelevanceSource::default(),
            examples: 128,
            initial: Initial::default(),
            alpha: 1.0,
        }
    }
}

/// Where relevance comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RelevanceSource {
    /// From a file of public examples with the columns of the training file.
    Public(PathBuf),
    /// From the private examples, with noise, which is paid for.
    Noised {
        /// The part of ε that the map alone would cost.
        share: f64,
        /// How many examples it is the sum of, on average.
        examples: u64,
    },
}

impl Default for RelevanceSource {
    fn default() -> Self {
        Self::Noised { share: 0.05, examples: 512 }
    }
}

/// How the noise is spread over the epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum NoiseSchedule {
    /// The same in all of them.
    #[default]
    Uniform,
    /// Falling along a line.
    Linear,
    /// Falling by equal factors.
    Exponential,
    /// Falling along half a wave.
    Cosine,
    /// Falling at once, half-way.
    Step,
    /// Epoch-weighted, as EW-FT does.
    Ewpba,
}

/// What is guaranteed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacyPlan {
    /// How.
    pub method: Method,
    /// Whether as published.
    #[serde(default)]
    pub mode: ModeName,
    /// ε that the run may spend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// δ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// The noise multiplier, in place of ε.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// How each unit's gradient is bounded.
    #[serde(default = "automatic", deserialize_with = "clip_or_number")]
    pub clip: Clip,
    /// How the noise is spread over the epochs.
    #[serde(default)]
    pub schedule: NoiseSchedule,
    /// How far apart the epochs of a schedule that is not uniform are.
    #[serde(default = "step_distance")]
    pub step_distance: f64,
    /// The part of ε that ewpba starts from holding back.
    #[serde(default = "reserve")]
    pub reserve: f64,
    /// Of ANADP.
    #[serde(default)]
    pub anadp: AnadpPlan,
    /// Of Rap-FT.
    #[serde(default)]
    pub rap_ft: RapFtPlan,
    /// Of AdaClip.
    #[serde(default)]
    pub adaclip: AdaclipPlan,
    /// Of methods that perturb records.
    #[serde(default)]
    pub forward: ForwardPlan,
    /// Of MVG.
    #[serde(default)]
    pub mvg: MvgPlan,
}

fn automatic() -> Clip {
    Clip::Automatic
}
fn step_distance() -> f64 {
    2.0
}
fn reserve() -> f64 {
    1.0
}

/// A number alone is the bound of flat clipping.
fn clip_or_number<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Clip, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ClipOrNumber {
        Number(f64),
        Clip(Clip),
    }
    let read = ClipOrNumber::deserialize(deserializer).map_err(|_| {
        serde::de::Error::custom(
            "clip is \"automatic\", a number, { flat = number } or { per_layer = number }",
        )
    })?;
    Ok(match read {
        ClipOrNumber::Number(bound) => Clip::Flat(bound),
        ClipOrNumber::Clip(clip) => clip,
    })
}

/// How it learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingPlan {
    /// Passes over the data.
    pub epochs: u32,
    /// Units in a step; on average, if the run is private.
    pub batch: u64,
    /// The largest learning rate.
    pub learning_rate: f64,
    /// How it rises and falls.
    #[serde(default)]
    pub learning_rate_schedule: RateSchedule,
    /// The part of all steps in which it rises.
    #[serde(default)]
    pub warmup: f64,
    /// The optimiser.
    #[serde(default)]
    pub optimiser: optimiser::Kind,
    /// Of SGD.
    #[serde(default = "momentum")]
    pub momentum: f32,
    /// Of Adam.
    #[serde(default = "betas")]
    pub betas: (f32, f32),
    /// Of Adam.
    #[serde(default = "adam_epsilon")]
    pub adam_epsilon: f32,
    /// Apart from the gradient.
    #[serde(default)]
    pub weight_decay: f32,
    /// Whether the model's dropout is on.
    #[serde(default)]
    pub dropout: bool,
    /// Makes the run repeatable, and not private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

fn momentum() -> f32 {
    0.9
}
fn betas() -> (f32, f32) {
    (0.9, 0.999)
}
fn adam_epsilon() -> f32 {
    1e-8
}

/// What changes time and memory, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComputePlan {
    /// The most sequences that are computed together.
    pub micro_batch: usize,
    /// The most tokens that are computed together.
    pub micro_tokens: usize,
    /// A checkpoint after so many steps; by default every five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<u64>,
}

impl Default for ComputePlan {
    fn default() -> Self {
        Self { micro_batch: 64, micro_tokens: 4096, checkpoint_every: None }
    }
}
