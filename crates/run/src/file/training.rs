//! `[training]` and `[compute]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// `[training]`: the optimiser's hyperparameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingSection {
    /// Number of epochs.
    pub epochs: u32,
    /// Batch size in privacy units; the expected one under Poisson sampling.
    pub batch: u64,
    /// The largest learning rate.
    pub learning_rate: f64,
    /// Schedule of the learning rate after warm-up.
    #[serde(default)]
    pub learning_rate_schedule: LearningRateSchedule,
    /// Warm-up: share of all steps in which the learning rate rises linearly, in [0, 1).
    #[serde(default)]
    pub warmup: f64,
    /// SGD, AdamW, or AdamW corrected for noise.
    #[serde(default)]
    pub optimiser: OptimiserKind,
    /// Momentum of SGD.
    #[serde(default = "momentum")]
    pub momentum: f32,
    /// β₁ and β₂ of Adam.
    #[serde(default = "betas")]
    pub betas: (f32, f32),
    /// ε in the denominator of Adam.
    #[serde(default = "adam_epsilon")]
    pub adam_epsilon: f32,
    /// Decoupled weight decay.
    #[serde(default)]
    pub weight_decay: f32,
    /// Whether the model's dropout is on.
    #[serde(default)]
    pub dropout: bool,
    /// Average of the weights over steps that takes the place of the last weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<WeightAverage>,
    /// Early stopping on the validation file, which must be public in a private run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_early: Option<StopEarly>,
    /// Seed of all randomness: makes the run reproducible, and not private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Early stopping: when a run ends before its last epoch, and which weights it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopEarly {
    /// The run stops when so many epochs have brought nothing better than the best one.
    pub patience: u32,
    /// Whose weights are kept.
    #[serde(default)]
    pub keep: KeptEpoch,
}

/// The epoch whose weights a run keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeptEpoch {
    /// The best on the validation file, also if the run was not stopped.
    #[default]
    Best,
    /// The last one.
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

/// An optimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptimiserKind {
    /// Stochastic gradient descent with momentum.
    Sgd,
    /// AdamW: Adam with decoupled weight decay.
    #[default]
    Adamw,
    /// AdamW with the variance of the privacy noise subtracted from the second moment, which noise
    /// otherwise dominates.
    AdamCorrected,
}

/// An average of the weights over steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightAverage {
    /// Exponential moving average with this decay.
    Ema(f64),
    /// Mean over this share of the steps, the last ones.
    Last(f64),
}

/// Schedule of the learning rate after warm-up.
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
    /// The share of the largest learning rate in `step` (from 0) of `steps`; it rises linearly in
    /// the first `warmup` of them. Never zero.
    pub fn share(self, step: u64, steps: u64, warmup: f64) -> f64 {
        let rising = (warmup * steps as f64).ceil();
        let taken = step as f64 + 1.0;
        if taken <= rising {
            return taken / (rising + 1.0);
        }
        // In (0, 1]: the last step still moves the weights.
        let left = 1.0 - (step as f64 - rising) / (steps as f64 - rising).max(1.0);
        match self {
            Self::Constant => 1.0,
            Self::Linear => left,
            Self::Cosine => 0.5 - 0.5 * (std::f64::consts::PI * left).cos(),
        }
    }
}

/// `[compute]`: settings that change time, memory and rounding only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComputeSection {
    /// Maximum sequences of a micro-batch.
    pub micro_batch: MicroBatch,
    /// Maximum tokens of a micro-batch.
    pub micro_tokens: MicroBatch,
    /// Number of steps between checkpoints; by default one every five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<u64>,
    /// Precision of matrix products and activations; by default bf16 on a GPU and f32 on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Whether activations are computed again in the backward pass and not kept (activation
    /// checkpointing): less memory, more time, the same results.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub recompute: bool,
    /// Whether an event file for TensorBoard is written beside metrics.jsonl.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tensorboard: bool,
    /// Whether sums of ranks on GPUs stay there and are sent by NCCL; results are the same.
    #[serde(skip_serializing_if = "NcclUse::is_auto")]
    pub nccl: NcclUse,
}

/// Whether NCCL carries the sums of several ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NcclUse {
    /// Where every rank has a GPU of its own and the library.
    #[default]
    Auto,
    /// Always: it is an error where NCCL cannot be used.
    On,
    /// Never: sums go through the hosts' memory.
    Off,
}

impl NcclUse {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Precision of matrix products and activations. Weights, sums of gradients, per-example norms and
/// noise are f32 or better in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Everything in f32.
    #[default]
    F32,
    /// Activations in f32; matrix products round their factors to ten bits behind the point.
    Tf32,
    /// Activations in bf16, with seven bits behind the point.
    Bf16,
}

impl Precision {
    /// All of them, the most exact first.
    pub const ALL: [Self; 3] = [Self::F32, Self::Tf32, Self::Bf16];

    /// As in run files.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }
}

impl std::fmt::Display for Precision {
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
            nccl: NcclUse::Auto,
        }
    }
}

/// How many sequences or tokens are computed together: a number, or "auto" for what the device
/// computes well and has memory for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MicroBatch {
    /// Chosen for model and device.
    #[default]
    Auto,
    /// At most so many.
    Most(usize),
}

impl MicroBatch {
    /// The number, or what "auto" means.
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
                let told = || E::invalid_value(de::Unexpected::Unsigned(most), &self);
                Ok(MicroBatch::Most(usize::try_from(most).map_err(|_| told())?))
            }

            fn visit_i64<E: de::Error>(self, most: i64) -> Result<MicroBatch, E> {
                let told = || E::invalid_value(de::Unexpected::Signed(most), &self);
                Ok(MicroBatch::Most(usize::try_from(most).map_err(|_| told())?))
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

    /// The linear schedule of transformers: (T − t)/(T − W) of the largest learning rate in step t
    /// of T, after W steps of warm-up.
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
