//! Hyperparameters that a run file may leave to the recipe, by `"auto"` or by leaving them out.

use super::{
    Clip, LearningRateSchedule, LoraSettings, MethodName, ModeName, OptimiserKind, RunFile, Tuning,
};

/// How "auto" is written.
pub(super) const AUTO: &str = "auto";

/// A key that may be "auto".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AutoKey {
    /// Which parameters are trainable.
    Tuning,
    /// δ.
    Delta,
    /// Gradient clipping.
    Clip,
    /// Number of epochs.
    Epochs,
    /// Batch size.
    Batch,
    /// The largest learning rate.
    LearningRate,
    /// Schedule of the learning rate.
    LearningRateSchedule,
    /// Warm-up of the learning rate.
    Warmup,
    /// The optimiser.
    Optimiser,
}

impl AutoKey {
    /// All of them, in the order of a run file.
    pub const ALL: [Self; 9] = [
        Self::Tuning,
        Self::Delta,
        Self::Clip,
        Self::Epochs,
        Self::Batch,
        Self::LearningRate,
        Self::LearningRateSchedule,
        Self::Warmup,
        Self::Optimiser,
    ];

    /// The key's path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Tuning => "model.tuning",
            Self::Delta => "privacy.delta",
            Self::Clip => "privacy.clip",
            Self::Epochs => "training.epochs",
            Self::Batch => "training.batch",
            Self::LearningRate => "training.learning_rate",
            Self::LearningRateSchedule => "training.learning_rate_schedule",
            Self::Warmup => "training.warmup",
            Self::Optimiser => "training.optimiser",
        }
    }

    /// Whether a run file of before recipes had to have the key.
    pub(super) fn has_no_fixed_default(self) -> bool {
        matches!(self, Self::Delta | Self::Epochs | Self::Batch | Self::LearningRate)
    }

    /// Whether the recipe chooses the key for this run: those of gradient methods in proved mode,
    /// and δ of local DP. As published, a method has the values that its paper states.
    pub(super) fn is_chosen_for(self, file: &RunFile) -> bool {
        let (method, paper) = (file.privacy.method, file.privacy.mode == ModeName::Paper);
        match self {
            Self::Delta => method != MethodName::None && !paper,
            Self::Clip => method.is_central() && !paper,
            _ => !method.is_local() && !paper,
        }
    }
}

/// Values for the keys that are "auto".
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// Which parameters are trainable.
    pub tuning: Tuning,
    /// δ; of no effect in a non-private run.
    pub delta: f64,
    /// Gradient clipping; of no effect in a non-private run.
    pub clip: Clip,
    /// Number of epochs.
    pub epochs: u32,
    /// Batch size in privacy units.
    pub batch: u64,
    /// The largest learning rate.
    pub learning_rate: f64,
    /// Schedule of the learning rate.
    pub learning_rate_schedule: LearningRateSchedule,
    /// Warm-up of the learning rate.
    pub warmup: f64,
    /// The optimiser.
    pub optimiser: OptimiserKind,
}

impl Choices {
    /// Values of the right kind, to check a run file with before its data are known.
    pub(super) fn likely(file: &RunFile) -> Self {
        let private = file.privacy.method != MethodName::None;
        let optimiser =
            if private { OptimiserKind::AdamCorrected } else { OptimiserKind::default() };
        Self {
            tuning: Tuning::Lora(LoraSettings::default()),
            delta: 1e-5,
            clip: Clip::Flat(1.0),
            epochs: 1,
            batch: 1,
            learning_rate: 1e-3,
            learning_rate_schedule: LearningRateSchedule::Linear,
            warmup: 0.0,
            optimiser,
        }
    }

    /// The values of a run file.
    pub fn of(file: &RunFile) -> Self {
        let training = &file.training;
        Self {
            tuning: file.model.tuning.clone(),
            delta: file.privacy.delta.unwrap_or(1e-5),
            clip: file.privacy.clip,
            epochs: training.epochs,
            batch: training.batch,
            learning_rate: training.learning_rate,
            learning_rate_schedule: training.learning_rate_schedule,
            warmup: training.warmup,
            optimiser: training.optimiser,
        }
    }

    /// Puts the value of a key into a run file.
    pub(super) fn put(&self, key: AutoKey, file: &mut RunFile) {
        let training = &mut file.training;
        match key {
            AutoKey::Tuning => file.model.tuning = self.tuning.clone(),
            AutoKey::Delta => file.privacy.delta = Some(self.delta),
            AutoKey::Clip => file.privacy.clip = self.clip,
            AutoKey::Epochs => training.epochs = self.epochs,
            AutoKey::Batch => training.batch = self.batch,
            AutoKey::LearningRate => training.learning_rate = self.learning_rate,
            AutoKey::LearningRateSchedule => {
                training.learning_rate_schedule = self.learning_rate_schedule;
            }
            AutoKey::Warmup => training.warmup = self.warmup,
            AutoKey::Optimiser => training.optimiser = self.optimiser,
        }
    }
}
