//! `[privacy]`: the method, its budget and its hyperparameters.

use super::local::{LocalSection, MvgSection};
use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;

/// A method by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MethodName {
    /// Non-private fine-tuning.
    None,
    /// Per-example gradient clipping, and Gaussian noise on the sum.
    DpSgd,
    /// DP-SGD with less noise on the parameters that are more important.
    Anadp,
    /// Two groups of parameters by relevance, each with a clipping norm and noise of its own.
    RapFt,
    /// DP-SGD with noise in proportion to the root of the gradients that it hides.
    Adaclip,
    /// Local DP: noise on each example's embedding.
    DpForward,
    /// Local DP through an encoder, with noise that falls from epoch to epoch.
    EwFt,
    /// Local DP on a sanitisation layer, with noise in the direction of the tokens' budgets.
    Mvg,
}

impl MethodName {
    /// Whether embeddings are perturbed by their owners (local DP) rather than gradients.
    pub fn is_local(self) -> bool {
        matches!(self, Self::DpForward | Self::EwFt | Self::Mvg)
    }

    /// The name in a run file.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::DpSgd => "dp-sgd",
            Self::Anadp => "anadp",
            Self::RapFt => "rap-ft",
            Self::Adaclip => "adaclip",
            Self::DpForward => "dp-forward",
            Self::EwFt => "ew-ft",
            Self::Mvg => "mvg",
        }
    }
}

/// Whether the printed ε is a theorem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeName {
    /// The nearest algorithm for which ε is proved.
    #[default]
    Proved,
    /// The method as published, to compare with.
    Paper,
}

/// Gradient clipping: how each unit's gradient is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Clip {
    /// Flat clipping to ℓ2 norm C: the gradient is scaled by min(1, C/‖g‖).
    Flat(f64),
    /// Per-layer clipping: each of K layers to ℓ2 norm C/√K, so that the whole is at most C.
    PerLayer(f64),
    /// Automatic clipping: the gradient is scaled by 1/(‖g‖ + γ), so that no threshold is left to
    /// tune. Its norm is then below 1.
    Automatic,
}

/// Hyperparameters of ANADP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnadpSection {
    /// Decay of the moving average of sensitivity, β₁.
    pub beta1: f32,
    /// Decay of the moving average of uncertainty, β₂.
    pub beta2: f32,
    /// How far weights are drawn to their mean, in [0, 1].
    pub alpha: f32,
    /// The quantiles whose distance is the unit of importance.
    pub quantiles: (f64, f64),
    /// The smallest and the largest weight.
    pub range: (f32, f32),
    /// Importance of elements, or of rows and columns; by default factored for full fine-tuning
    /// and element for all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<ImportanceForm>,
}

impl Default for AnadpSection {
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

/// What ANADP's moving averages are kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImportanceForm {
    /// Every coordinate.
    Element,
    /// Rows and columns of each weight matrix.
    Factored,
}

/// Hyperparameters of AdaClip.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaclipSection {
    /// Decay of the moving average of squared gradients.
    pub beta: f32,
    /// w ∝ (E g²)^(−exponent): ½ leaves the least noise, 0 is DP-SGD, 1 gives every coordinate the
    /// same ratio of gradient to noise.
    pub exponent: f64,
    /// The smallest and the largest weight, before the mean is brought to 1.
    pub range: (f32, f32),
}

impl Default for AdaclipSection {
    fn default() -> Self {
        Self { beta: 0.9, exponent: 0.5, range: (0.05, 20.0) }
    }
}

/// Hyperparameters of Rap-FT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RapFtSection {
    /// Share of the coordinates that count as weakly relevant: β.
    pub irrelevance: f64,
    /// Whose relevance, in proved mode; paper mode uses the private examples' without noise.
    pub relevance: RelevanceSource,
    /// Examples that a map of public examples, or of private ones in paper mode, is the mean of.
    pub examples: usize,
    /// Where relevance starts in generation tasks.
    pub initial: InitialRelevance,
    /// α of LRP's α–β rule; β is 1 − α.
    pub alpha: f32,
}

impl Default for RapFtSection {
    fn default() -> Self {
        Self {
            irrelevance: 0.7,
            relevance: RelevanceSource::default(),
            examples: 128,
            initial: InitialRelevance::default(),
            alpha: 1.0,
        }
    }
}

/// Where a relevance map comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RelevanceSource {
    /// A file of public examples with the columns of the training file.
    Public(PathBuf),
    /// The private examples, with noise whose cost is in the ledger.
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

/// Which logits relevance propagation starts from in generation tasks. In classification it is
/// always the label's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum InitialRelevance {
    /// All probabilities.
    Naive,
    /// The k largest probabilities of each token.
    TopK(usize),
    /// The largest probabilities of each token, until together they reach p.
    TopP(f32),
    /// The tokens of the likeliest sequences of a beam search, so many of them.
    Beam(usize),
}

impl Default for InitialRelevance {
    fn default() -> Self {
        Self::TopK(10)
    }
}

/// Noise over the epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseSchedule {
    /// The same noise multiplier in every epoch.
    #[default]
    Uniform,
    /// Linear decay.
    Linear,
    /// Exponential decay.
    Exponential,
    /// Cosine decay.
    Cosine,
    /// One step down, half-way.
    Step,
    /// Epoch-weighted privacy budget allocation, EW-FT's.
    Ewpba,
}

/// `[privacy]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacySection {
    /// The method.
    pub method: MethodName,
    /// Proved, or as published.
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
    /// Gradient clipping; in local DP the norm of an example's embedding.
    #[serde(default = "automatic", deserialize_with = "clip_or_number")]
    pub clip: Clip,
    /// Noise over the epochs.
    #[serde(default)]
    pub schedule: NoiseSchedule,
    /// Ratio or step distance of a schedule that is not uniform.
    #[serde(default = "step_distance")]
    pub step_distance: f64,
    /// The part of ε that EWPBA starts from holding back.
    #[serde(default = "reserve")]
    pub reserve: f64,
    /// Hyperparameters of ANADP.
    #[serde(default)]
    pub anadp: AnadpSection,
    /// Hyperparameters of Rap-FT.
    #[serde(default)]
    pub rap_ft: RapFtSection,
    /// Hyperparameters of AdaClip.
    #[serde(default)]
    pub adaclip: AdaclipSection,
    /// Local DP. Called `forward` in earlier versions.
    #[serde(default, alias = "forward")]
    pub local: LocalSection,
    /// Hyperparameters of per-attribute MVG.
    #[serde(default)]
    pub mvg: MvgSection,
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

/// A number alone is the norm of flat clipping.
fn clip_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Clip, D::Error> {
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
