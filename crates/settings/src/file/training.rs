//! `[training]`, `[evaluation]` and `[compute]`: hyperparameters of the optimizer, released metrics
//! and settings of the hardware.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// `[training]`: the optimizer's hyperparameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingSection {
    /// Number of epochs, of ⌊units/batch⌋ steps each in private runs; chosen by the recipe by
    /// default.
    pub epochs: u32,
    /// Batch size in privacy units, which is the expected size under Poisson sampling; chosen by
    /// the recipe by default.
    pub batch: u64,
    /// Peak learning rate; chosen by the recipe by default.
    pub learning_rate: f64,
    /// Learning-rate schedule after warm-up; chosen by the recipe by default.
    #[serde(default)]
    pub learning_rate_schedule: LearningRateSchedule,
    /// Fraction of all steps, in [0, 1), over which the learning rate warms up linearly; chosen by
    /// the recipe by default.
    #[serde(default)]
    pub warmup: f64,
    /// The optimizer: SGD, AdamW, or AdamW corrected for noise; chosen by the recipe by default.
    #[serde(default)]
    pub optimizer: OptimizerKind,
    /// Momentum of SGD; 0.9 by default.
    #[serde(default = "momentum")]
    pub momentum: f32,
    /// β₁ and β₂ of Adam; `[0.9, 0.999]` by default.
    #[serde(default = "betas")]
    pub betas: (f32, f32),
    /// ε in the denominator of Adam; 1e-8 by default.
    #[serde(default = "adam_epsilon")]
    pub adam_epsilon: f32,
    /// Decoupled weight decay, without biases and normalizations; 0 by default.
    #[serde(default)]
    pub weight_decay: f32,
    /// Whether the model's dropout is enabled; false by default.
    #[serde(default)]
    pub dropout: bool,
    /// Average of the weights over steps, which is validated and saved instead of the final
    /// weights; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<WeightAverage>,
    /// Gain of a filter over the released gradients (DiSK), above 0 and below 1, which costs no
    /// privacy; smaller gains average over more steps. For methods without correlated noise that do
    /// not learn from releases; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_gain: Option<f64>,
    /// Early stopping on the validation file, which must be public in a private run, or on its
    /// released metrics (`evaluation.epsilon`); none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_early: Option<StopEarly>,
    /// Seed of all randomness, which makes the run reproducible but not private; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Early stopping: when a run ends before its last epoch, and which weights it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopEarly {
    /// Number of epochs without improvement over the best epoch after which the run stops;
    /// required.
    pub patience: u32,
    /// The epoch whose weights are kept; `best` by default.
    #[serde(default)]
    pub keep: KeptEpoch,
}

/// The epoch whose weights a run keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeptEpoch {
    /// The best epoch on the validation file, even if the run was not stopped early.
    #[default]
    Best,
    /// The last epoch.
    Last,
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

/// An optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptimizerKind {
    /// Stochastic gradient descent with momentum.
    Sgd,
    /// AdamW: Adam with decoupled weight decay.
    #[default]
    Adamw,
    /// AdamW with the variance of the privacy noise subtracted from the second moment, which the
    /// noise otherwise dominates.
    AdamCorrected,
}

/// An average of the weights over steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightAverage {
    /// Exponential moving average with this decay.
    Ema(f64),
    /// Mean over this fraction of the steps, counted from the end.
    Last(f64),
}

/// Learning-rate schedule after warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearningRateSchedule {
    /// Constant learning rate.
    #[default]
    Constant,
    /// Linear decay to zero.
    Linear,
    /// Cosine decay to zero.
    Cosine,
}

impl LearningRateSchedule {
    /// Fraction of the peak learning rate at `step` (from 0) of `steps`. It rises linearly over the
    /// first `warmup` fraction of the steps and is never zero.
    pub fn share(self, step: u64, steps: u64, warmup: f64) -> f64 {
        let rising = (warmup * steps as f64).ceil();
        let taken = step as f64 + 1.0;
        if taken <= rising {
            return taken / (rising + 1.0);
        }
        // In (0, 1], so that the last step still updates the weights.
        let left = 1.0 - (step as f64 - rising) / (steps as f64 - rising).max(1.0);
        match self {
            Self::Constant => 1.0,
            Self::Linear => left,
            Self::Cosine => 0.5 - 0.5 * (std::f64::consts::PI * left).cos(),
        }
    }
}

/// `[evaluation]`: metrics on private validation data that are released with noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationSection {
    /// ε of all released metrics together, a part of `privacy.epsilon`; none by default, and no
    /// metric is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// Number of epochs from one released metric to the next; 1 by default.
    #[serde(default = "every_epoch")]
    pub every: u32,
}

fn every_epoch() -> u32 {
    1
}

impl Default for EvaluationSection {
    fn default() -> Self {
        Self { epsilon: None, every: every_epoch() }
    }
}

impl EvaluationSection {
    /// Whether no metric is released.
    pub fn is_off(&self) -> bool {
        self.epsilon.is_none()
    }
}

/// `[compute]`: settings that affect only time, memory and rounding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComputeSection {
    /// Maximum number of sequences per micro-batch; `auto` by default. Automatic: 64 on the CPU,
    /// and up to 4,096 on a GPU.
    pub micro_batch: MicroBatch,
    /// Maximum number of tokens per micro-batch; `auto` by default. Automatic: 4,096 on the CPU,
    /// and up to 32,768 on a GPU.
    pub micro_tokens: MicroBatch,
    /// Number of steps between checkpoints; every five minutes by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<u64>,
    /// Precision of matrix products and activations; bf16 on a GPU and f32 on the CPU by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<PrecisionName>,
    /// Whether activations are recomputed in the backward pass instead of stored (activation
    /// checkpointing), which saves memory; false by default. The results are the same. Private
    /// training of large matrices then takes two backward passes, and that of LoRA, adapters,
    /// biases or a head takes one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub recompute: bool,
    /// Whether a TensorBoard event file is written next to `metrics.jsonl`; false by default.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tensorboard: bool,
    /// Format in which the figures of each step that may be shared are logged for experiment
    /// trackers; not logged by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogFormat>,
    /// Whether the log also has figures computed from private data without noise, such as the loss;
    /// false by default.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub log_private: bool,
    /// Whether sums across ranks stay on their GPUs and use NCCL, with the same results; `auto` by
    /// default.
    #[serde(skip_serializing_if = "NcclUse::is_auto")]
    pub nccl: NcclUse,
}

/// The format of the log for experiment trackers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// `events.jsonl`: one JSON object per line, with settings and guarantee.
    Jsonl,
    /// `events.csv`: one row per step.
    Csv,
}

/// Whether sums across ranks use NCCL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NcclUse {
    /// If every rank has its own GPU and the NCCL library.
    #[default]
    Auto,
    /// Always; fail if NCCL cannot be used.
    On,
    /// Never; sums go through host memory.
    Off,
}

impl NcclUse {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Precision of matrix products and activations. Weights, gradient sums, per-example norms and
/// noise are always f32 or better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrecisionName {
    /// Everything in f32.
    #[default]
    F32,
    /// Activations in f32; matrix products round their factors to ten fraction bits.
    Tf32,
    /// Activations in bf16, with seven fraction bits.
    Bf16,
}

impl PrecisionName {
    /// All precisions, most precise first.
    pub const ALL: [Self; 3] = [Self::F32, Self::Tf32, Self::Bf16];

    /// The name in run files.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }
}

impl std::fmt::Display for PrecisionName {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Default for ComputeSection {
    fn default() -> Self {
        let auto = MicroBatch::Auto;
        Self {
            micro_batch: auto,
            micro_tokens: auto,
            checkpoint_every: None,
            precision: None,
            recompute: false,
            tensorboard: false,
            log: None,
            log_private: false,
            nccl: NcclUse::Auto,
        }
    }
}

/// Maximum number of sequences or tokens per micro-batch: a number, or "auto" to fit the device's
/// throughput and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MicroBatch {
    /// Chosen for the model and the device.
    #[default]
    Auto,
    /// At most this number.
    Most(usize),
}

impl MicroBatch {
    /// The number, or `auto` if it is left to the device.
    pub fn or(self, auto: usize) -> usize {
        match self {
            Self::Auto => auto,
            Self::Most(most) => most,
        }
    }
}

impl Serialize for MicroBatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Most(most) => serializer.serialize_u64(*most as u64),
        }
    }
}

impl<'de> Deserialize<'de> for MicroBatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl de::Visitor<'_> for Either {
            type Value = MicroBatch;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a number or \"auto\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<MicroBatch, E> {
                match text {
                    "auto" => Ok(MicroBatch::Auto),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_u64<E: de::Error>(self, most: u64) -> Result<MicroBatch, E> {
                let invalid = || E::invalid_value(de::Unexpected::Unsigned(most), &self);
                Ok(MicroBatch::Most(usize::try_from(most).map_err(|_| invalid())?))
            }

            fn visit_i64<E: de::Error>(self, most: i64) -> Result<MicroBatch, E> {
                let invalid = || E::invalid_value(de::Unexpected::Signed(most), &self);
                Ok(MicroBatch::Most(usize::try_from(most).map_err(|_| invalid())?))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_learning_rate_rises_to_the_top_and_falls() {
        use LearningRateSchedule::{Constant, Cosine, Linear};
        for schedule in [Constant, Linear, Cosine] {
            let shares: Vec<f64> = (0..100).map(|step| schedule.share(step, 100, 0.1)).collect();
            assert!(shares.iter().all(|share| *share > 0.0 && *share <= 1.0));
            assert!(shares[..10].windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(shares[10], 1.0);
            assert!(shares[10..].windows(2).all(|pair| pair[0] >= pair[1]));
            let last = shares[99];
            assert!(if schedule == Constant { last == 1.0 } else { last < 0.02 });
        }
        assert_eq!(Linear.share(0, 1, 0.0), 1.0);
    }

    /// The linear schedule of Hugging Face transformers: (T − t)/(T − W) of the peak learning rate
    /// at step t of T, after W warm-up steps.
    #[test]
    fn the_linear_schedule_is_that_of_transformers_after_warm_up() {
        for (steps, rising) in [(100, 0), (100, 10), (7, 2)] {
            let warmup = rising as f64 / steps as f64;
            for step in rising..steps {
                let theirs = (steps - step) as f64 / (steps - rising) as f64;
                let ours = LearningRateSchedule::Linear.share(step, steps, warmup);
                assert!((ours - theirs).abs() < 1e-12, "{step} of {steps}: {ours}, not {theirs}");
            }
        }
    }
}
