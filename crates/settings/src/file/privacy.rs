//! `[privacy]`: the method, its budget and its hyperparameters.

use super::local::{LocalSection, MvgSection};
use super::paper::PaperSection;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;

/// The method: non-private fine-tuning, central DP or local DP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MethodName {
    /// Non-private fine-tuning.
    None,
    /// DP-SGD: per-example gradient clipping and Gaussian noise on the sum.
    DpSgd,
    /// ANADP: DP-SGD with less noise on more important parameters.
    Anadp,
    /// Rap-FT: parameters in two groups by relevance, each with its own clipping norm and noise.
    RapFt,
    /// AdaClip: DP-SGD with a noise std proportional to the square root of the gradient's
    /// magnitude.
    Adaclip,
    /// DP-Forward: local DP with noise on each example's embedding.
    DpForward,
    /// EW-FT: local DP through an encoder, with noise that decreases over the epochs.
    EwFt,
    /// Per-attribute MVG: local DP at a sanitization layer, with directional noise derived from the
    /// tokens' budgets.
    Mvg,
}

impl MethodName {
    /// Whether this is a local-DP method, which perturbs embeddings instead of gradients.
    pub fn is_local(self) -> bool {
        matches!(self, Self::DpForward | Self::EwFt | Self::Mvg)
    }

    /// Whether this is a central-DP method, which perturbs gradients.
    pub fn is_central(self) -> bool {
        self != Self::None && !self.is_local()
    }

    /// The method's name in a run file.
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

/// Whether ε is proved for the algorithm as it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeName {
    /// The method in a form for which ε is proved.
    #[default]
    Proved,
    /// The method as published, for comparison, with no guarantee.
    Paper,
}

/// Gradient clipping: how the gradient of each unit is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Clip {
    /// Flat clipping to ℓ2 norm C: the gradient is scaled by min(1, C/‖g‖).
    Flat(f64),
    /// Per-layer clipping: each of K layers is clipped to ℓ2 norm C/√K, so the whole gradient has
    /// norm at most C.
    PerLayer(f64),
    /// Automatic clipping: the gradient is scaled by 1/(‖g‖ + γ) to a norm below 1, so there is no
    /// threshold to tune.
    Automatic,
    /// Adaptive clipping: flat clipping to a norm that tracks a quantile of the gradient norms.
    Adaptive(AdaptiveClip),
}

/// Adaptive clipping (Andrew et al., 2021): each step also releases a noisy count of the gradients
/// with norm at most C, and moves C toward a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaptiveClip {
    /// Target fraction of gradients with norm at most C; 0.5 by default.
    pub quantile: f64,
    /// Initial value of C; 1 by default.
    pub initial: f64,
    /// Learning rate η of the update C ← C · exp(−η (share − quantile)); 0.2 by default.
    pub rate: f64,
    /// Standard deviation of the noise on the count of gradients with norm at most C, at least 1;
    /// by default a twentieth of the expected batch, but at least twice the noise multiplier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
}

impl Default for AdaptiveClip {
    fn default() -> Self {
        Self { quantile: 0.5, initial: 1.0, rate: 0.2, noise: None }
    }
}

/// Correlated noise: banded matrix factorization (BandMF).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseCorrelation {
    /// Number of bands b, from 2 to 1024, with b · batch at most the number of units; required. A
    /// unit participates at most once in any b consecutive steps.
    pub bands: usize,
}

/// The level at which a step samples if the unit is a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplingLevel {
    /// User-level sampling: a step samples users, and the mean gradient of each is clipped.
    #[default]
    Users,
    /// Example-level sampling: a step samples examples, and the gradient of each is clipped.
    Examples,
}

impl SamplingLevel {
    /// Whether a step samples users.
    pub fn is_users(&self) -> bool {
        *self == Self::Users
    }
}

/// Source of the importance or second-moment estimates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ImportanceSource {
    /// The noisy gradients of earlier steps.
    #[default]
    Released,
    /// Gradients on the examples of a public file that has the columns of the training file.
    Public(PathBuf),
}

impl ImportanceSource {
    /// Whether the source is a public file.
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
    /// Decay β₁ of the moving average of sensitivity; 0.85 by default.
    pub beta1: f32,
    /// Decay β₂ of the moving average of uncertainty; 0.85 by default.
    pub beta2: f32,
    /// Shrinkage α of the weights toward their mean, in [0, 1]; 0.5 by default.
    pub alpha: f32,
    /// Quantiles q₁ and q₂ whose difference normalizes importance; `[0.75, 0.25]` by default.
    pub quantiles: (f64, f64),
    /// Smallest and largest weight, before the weights are rescaled to mean 1; `[0.25, 4]` by
    /// default.
    pub range: (f32, f32),
    /// Granularity of importance; by default `factored` for full fine-tuning in proved mode and
    /// `element` otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<ImportanceForm>,
    /// Gradients from which importance is computed in proved mode; `released` by default.
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

/// Granularity of importance and second moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImportanceForm {
    /// One value per coordinate.
    Element,
    /// One value per row and per column of a weight matrix.
    Factored,
}

/// Hyperparameters of AdaClip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaclipSection {
    /// Decay of the moving average of squared gradients; 0.9 by default.
    pub beta: f32,
    /// Exponent of the weights w ∝ (E g²)^(−exponent), where ½ minimizes the noise, 0 is DP-SGD and
    /// 1 gives every coordinate the same gradient-to-noise ratio; 0.5 by default.
    pub exponent: f64,
    /// Smallest and largest weight, before the weights are rescaled to mean 1; `[0.05, 20]` by
    /// default.
    pub range: (f32, f32),
    /// Gradients from which the second moments are estimated; `released` by default.
    #[serde(skip_serializing_if = "ImportanceSource::is_released")]
    pub importance: ImportanceSource,
    /// Granularity of the second moments of public gradients; by default `factored` for full
    /// fine-tuning and `element` otherwise. Those of released gradients are always factored.
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
    /// Fraction β of the coordinates treated as weakly relevant, above 0.5 and at most 1; 0.7 by
    /// default.
    pub irrelevance: f64,
    /// Source of the relevance map; `{ noised = { clip = 0.1, examples = 512, share = 0.05 } }` by
    /// default.
    pub relevance: RelevanceSource,
    /// Number of examples in a public map or, in paper mode, in the map of private examples; 128 by
    /// default.
    pub examples: usize,
    /// Logits at which relevance propagation starts in generation tasks; `{ top_k = 10 }` by
    /// default.
    pub initial: InitialRelevance,
    /// Rule by which a linear layer propagates relevance; `alpha-beta` by default.
    pub rule: RelevanceRule,
    /// α of LRP's α–β rule, where β is 1 − α; 1 by default.
    pub alpha: f32,
    /// Random draws per example for weights initialized to zero (LoRA's B, the second layer of an
    /// adapter); 32 by default.
    pub probes: usize,
}

/// How a linear layer propagates relevance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelevanceRule {
    /// The α–β rule: positive and negative contributions are separated (equations 3 and 4).
    #[default]
    AlphaBeta,
    /// LRP-0: proportional to the contributions, regardless of sign (equation 6).
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
        }
    }
}

/// Source of a relevance map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RelevanceSource {
    /// A file of public examples that has the columns of the training file.
    Public(PathBuf),
    /// A noisy map of a Poisson sample of the private examples; recorded in the ledger.
    Noised {
        /// Fraction of ε that the map costs on its own.
        share: f64,
        /// Expected number of examples in the sample.
        examples: u64,
        /// ℓ2 norm to which each example's map is clipped; 0.1 by default.
        #[serde(default = "map_clip")]
        clip: f64,
    },
}

/// Below the norm of most maps, so that the noise, which is proportional to it, is small relative
/// to their sum.
fn map_clip() -> f64 {
    0.1
}

impl Default for RelevanceSource {
    fn default() -> Self {
        Self::Noised { share: 0.05, examples: 512, clip: map_clip() }
    }
}

/// Logits at which relevance propagation starts in generation tasks. In classification it starts at
/// the label's logit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum InitialRelevance {
    /// All tokens, weighted by their probabilities.
    Naive,
    /// The k most probable candidates at each token.
    TopK(usize),
    /// The most probable candidates at each token, until their total probability reaches p.
    TopP(f32),
    /// The tokens of the most likely sequences of a beam search of this width.
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
    /// One step down, halfway.
    Step,
    /// Epoch-weighted privacy budget allocation of EW-FT.
    Ewpba,
}

/// `[privacy]`: the method, its budget and its hyperparameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacySection {
    /// The fine-tuning method; `dp-sgd` by default.
    pub method: MethodName,
    /// Whether the method runs in the form with a proved guarantee or as published; `proved` by
    /// default.
    #[serde(default)]
    pub mode: ModeName,
    /// Target ε of the run, to which the noise is calibrated; required, unless noise multipliers
    /// are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// Target δ of the run; chosen by the recipe by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// Declared number of privacy units, used instead of the training file's own to compute the
    /// sampling rate, steps, divisor and recipe, so that no output of the run depends on the true
    /// number and the guarantee does not assume that it is public; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
    /// Noise multiplier, instead of a target ε, with the uniform schedule; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// Noise multiplier of each epoch, instead of a target ε, where 0 means an epoch without noise;
    /// none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multipliers: Option<Vec<f64>>,
    /// Gradient clipping or, in local DP, the norm bound of an example's embedding (1 unless a
    /// number is given); chosen by the recipe by default.
    #[serde(default = "automatic", deserialize_with = "clip_or_number")]
    pub clip: Clip,
    /// With `data.author`, what a step samples and clips: `users` or single `examples`, of which a
    /// user has at most `most_per_author`; `users` by default. The unit is the user either way.
    #[serde(default, skip_serializing_if = "SamplingLevel::is_users")]
    pub sampling: SamplingLevel,
    /// Correlation of the noise across steps, with the uniform schedule; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<NoiseCorrelation>,
    /// Schedule of the noise multiplier over the epochs; `uniform` by default.
    #[serde(default)]
    pub schedule: NoiseSchedule,
    /// Ratio of the first to the last noise multiplier of a schedule (S in EWPBA); 2 by default.
    #[serde(default = "step_distance")]
    pub step_distance: f64,
    /// Portion of ε that EWPBA reserves for the spread of noise multipliers, below ε; 1 by default.
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
    /// Settings of local DP.
    #[serde(default)]
    pub local: LocalSection,
    /// Hyperparameters of per-attribute MVG.
    #[serde(default)]
    pub mvg: MvgSection,
    /// Readings of the papers, for replications.
    #[serde(default, skip_serializing_if = "PaperSection::is_empty")]
    pub paper: PaperSection,
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

/// Parses a plain number as the norm of flat clipping.
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
