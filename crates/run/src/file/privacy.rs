//! `[privacy]`: the method, its budget and its hyperparameters.

use super::local::{LocalSection, MvgSection};
use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;

/// The method: non-private fine-tuning, central DP or local DP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MethodName {
    /// Non-private fine-tuning.
    None,
    /// DP-SGD: per-example gradient clipping, and Gaussian noise on the sum.
    DpSgd,
    /// ANADP: DP-SGD with less noise on more important parameters.
    Anadp,
    /// Rap-FT: two groups of parameters by relevance, each with its own clipping bound and noise.
    RapFt,
    /// AdaClip: DP-SGD with noise std in proportion to the root of the gradient's magnitude.
    Adaclip,
    /// DP-Forward: local DP with noise on each example's embedding.
    DpForward,
    /// EW-FT: local DP through an encoder, with noise that falls from epoch to epoch.
    EwFt,
    /// Per-attribute MVG: local DP on a sanitisation layer, with noise in a direction that follows
    /// from the tokens' budgets.
    Mvg,
}

impl MethodName {
    /// Whether the method is one of local DP, which perturbs embeddings in place of gradients.
    pub fn is_local(self) -> bool {
        matches!(self, Self::DpForward | Self::EwFt | Self::Mvg)
    }

    /// Whether the method is one of central DP, which perturbs gradients.
    pub fn is_central(self) -> bool {
        self != Self::None && !self.is_local()
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

/// Whether ε is proved for the algorithm that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeName {
    /// The method in a form for which ε is proved.
    #[default]
    Proved,
    /// The method as published, for comparison: nothing is guaranteed.
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
    /// Automatic clipping: the gradient is scaled by 1/(‖g‖ + γ), to a norm below 1, so that there
    /// is no threshold to tune.
    Automatic,
    /// Adaptive clipping: flat clipping to a norm that follows a quantile of the gradients' norms.
    Adaptive(AdaptiveClip),
}

/// Adaptive clipping (Andrew and others, 2021): each step also releases, with noise, how many
/// gradients have a norm of at most C, and moves C towards a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaptiveClip {
    /// Share of the gradients that are to have a norm of at most C.
    pub quantile: f64,
    /// C of the first step.
    pub initial: f64,
    /// Learning rate η of C ← C · exp(−η (share − quantile)).
    pub rate: f64,
    /// Standard deviation of the noise on the number of such gradients; by default a twentieth of
    /// the expected batch, and at least twice the noise multiplier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
}

impl Default for AdaptiveClip {
    fn default() -> Self {
        Self { quantile: 0.5, initial: 1.0, rate: 0.2, noise: None }
    }
}

/// Correlated noise: banded matrix factorisation (BandMF).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseCorrelation {
    /// Number of bands: a unit takes part in every so many steps at most.
    pub bands: usize,
}

/// What importance or second moments are estimated from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ImportanceSource {
    /// The noisy gradients of earlier steps.
    #[default]
    Released,
    /// Gradients of the examples of a public file with the columns of the training file.
    Public(PathBuf),
}

impl ImportanceSource {
    /// Whether it is a public file.
    pub fn is_public(&self) -> bool {
        matches!(self, Self::Public(_))
    }

    fn is_released(&self) -> bool {
        !self.is_public()
    }
}

/// Hyperparameters of ANADP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnadpSection {
    /// Decay of the moving average of sensitivity, β₁.
    pub beta1: f32,
    /// Decay of the moving average of uncertainty, β₂.
    pub beta2: f32,
    /// α: how far weights are shrunk towards their mean, in [0, 1].
    pub alpha: f32,
    /// The quantiles q₁ and q₂ whose distance importance is divided by.
    pub quantiles: (f64, f64),
    /// The smallest and the largest weight, before the mean is brought to 1.
    pub range: (f32, f32),
    /// Granularity of importance; by default factored for full fine-tuning in proved mode, and
    /// element otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<ImportanceForm>,
    /// Which gradients importance is computed from, in proved mode.
    #[serde(skip_serializing_if = "ImportanceSource::is_released")]
    pub importance: ImportanceSource,
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
            importance: ImportanceSource::Released,
        }
    }
}

/// Granularity of importance and of second moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImportanceForm {
    /// One importance for every coordinate.
    Element,
    /// One for each row and each column of a weight matrix.
    Factored,
}

/// Hyperparameters of AdaClip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaclipSection {
    /// Decay of the moving average of squared gradients.
    pub beta: f32,
    /// w ∝ (E g²)^(−exponent): ½ leaves the least noise, 0 is DP-SGD, 1 gives every coordinate the
    /// same ratio of gradient to noise.
    pub exponent: f64,
    /// The smallest and the largest weight, before the mean is brought to 1.
    pub range: (f32, f32),
    /// Which gradients the second moments are of.
    #[serde(skip_serializing_if = "ImportanceSource::is_released")]
    pub importance: ImportanceSource,
    /// Granularity of second moments of public gradients; by default factored for full fine-tuning
    /// and element otherwise. Those of released gradients, which are noisy, are factored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<ImportanceForm>,
}

impl Default for AdaclipSection {
    fn default() -> Self {
        Self {
            beta: 0.9,
            exponent: 0.5,
            range: (0.05, 20.0),
            importance: ImportanceSource::Released,
            form: None,
        }
    }
}

/// Hyperparameters of Rap-FT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RapFtSection {
    /// Share of the coordinates that count as weakly relevant: β.
    pub irrelevance: f64,
    /// Source of the relevance map in proved mode; paper mode uses private examples without noise.
    pub relevance: RelevanceSource,
    /// Number of examples of a public map, or in paper mode of the map of private examples.
    pub examples: usize,
    /// Which logits relevance propagation starts from in generation tasks.
    pub initial: InitialRelevance,
    /// How a linear layer passes relevance on.
    pub rule: RelevanceRule,
    /// α of LRP's α–β rule; β is 1 − α.
    pub alpha: f32,
    /// Random draws for each example of weights that begin at zero (LoRA's B, the second layer of
    /// an adapter).
    pub probes: usize,
    /// Whether a layer's bias takes its share of the relevance, as published (Z of equation 4); by
    /// default in paper mode alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias_in_z: Option<bool>,
}

/// How a linear layer passes relevance on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelevanceRule {
    /// The α–β rule: positive and negative contributions apart (equations 3 and 4).
    #[default]
    AlphaBeta,
    /// LRP-0: in proportion to the contributions, whatever their sign (equation 6).
    #[serde(rename = "lrp-0")]
    Lrp0,
}

impl Default for RapFtSection {
    fn default() -> Self {
        Self {
            irrelevance: 0.7,
            relevance: RelevanceSource::default(),
            examples: 128,
            initial: InitialRelevance::default(),
            rule: RelevanceRule::default(),
            alpha: 1.0,
            probes: 32,
            bias_in_z: None,
        }
    }
}

/// Source of a relevance map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RelevanceSource {
    /// A file of public examples with the columns of the training file.
    Public(PathBuf),
    /// A Poisson sample of the private examples, with noise; recorded in the ledger.
    Noised {
        /// The share of ε that the map by itself costs.
        share: f64,
        /// Expected number of examples in the sample.
        examples: u64,
        /// ℓ2 norm to which each example's map is clipped.
        #[serde(default = "map_clip")]
        clip: f64,
    },
}

/// Below the norms of most maps, so that noise in proportion to it is small against their sum.
fn map_clip() -> f64 {
    0.1
}

impl Default for RelevanceSource {
    fn default() -> Self {
        Self::Noised { share: 0.05, examples: 512, clip: map_clip() }
    }
}

/// Which logits relevance propagation starts from in generation tasks. In classification it starts
/// from the label's logit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum InitialRelevance {
    /// All tokens, weighted by their probabilities.
    Naive,
    /// The k largest probabilities of each token.
    TopK(usize),
    /// The largest probabilities of each token, until together they reach p.
    TopP(f32),
    /// The tokens of the likeliest sequences of a beam search of this width.
    Beam(usize),
}

impl Default for InitialRelevance {
    fn default() -> Self {
        Self::TopK(10)
    }
}

/// Schedule of the noise multiplier over the epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
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
    /// EW-FT's epoch-weighted privacy budget allocation.
    Ewpba,
}

/// `[privacy]`: the method, its budget and its hyperparameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacySection {
    /// The method of fine-tuning.
    pub method: MethodName,
    /// Proved, or as published.
    #[serde(default)]
    pub mode: ModeName,
    /// Target ε of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// Target δ of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// Declared number of privacy units, in place of the training file's own. Sampling rate, steps,
    /// divisor and recipe are computed from it, so that nothing that leaves the run depends on the
    /// true number, and the guarantee does not assume that it is public.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
    /// Noise multiplier, in place of a target ε.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// Noise multiplier of each epoch, in place of a target ε; 0 for an epoch without noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multipliers: Option<Vec<f64>>,
    /// Gradient clipping; in local DP the norm bound of an example's embedding.
    #[serde(default = "automatic", deserialize_with = "clip_or_number")]
    pub clip: Clip,
    /// Correlation of the noise of the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<NoiseCorrelation>,
    /// Schedule of the noise multiplier over the epochs.
    #[serde(default)]
    pub schedule: NoiseSchedule,
    /// Ratio of the first to the last noise multiplier of a schedule; S of EWPBA.
    #[serde(default = "step_distance")]
    pub step_distance: f64,
    /// ε that EWPBA reserves for the spread of noise multipliers.
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

/// Reads a plain number as the bound of flat clipping.
fn clip_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Clip, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ClipOrNumber {
        Number(f64),
        Clip(Clip),
    }
    let read = ClipOrNumber::deserialize(deserializer).map_err(|_| {
        serde::de::Error::custom(
            "clip is \"automatic\", a number, { flat = number }, { per_layer = number } or \
             { adaptive = { quantile = 0.5, initial = 1.0, rate = 0.2 } }",
        )
    })?;
    Ok(match read {
        ClipOrNumber::Number(bound) => Clip::Flat(bound),
        ClipOrNumber::Clip(clip) => clip,
    })
}
