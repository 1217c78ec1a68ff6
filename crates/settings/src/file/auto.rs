//! Hyperparameters that a run file may leave to the recipe, by setting `"auto"` or omitting the
//! key.

use super::{
    Clip, LearningRateSchedule, LoraSettings, MethodName, ModeName, OptimizerKind, RunFile, Tuning,
};

/// The value that leaves a key to the recipe.
pub(super) const AUTO: &str = "auto";

/// A key that may be `"auto"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AutoKey {
    /// `model.tuning`: which parameters are trainable.
    Tuning,
    /// `privacy.delta`: δ.
    Delta,
    /// `privacy.clip`: gradient clipping.
    Clip,
    /// `training.epochs`: number of epochs.
    Epochs,
    /// `training.batch`: batch size.
    Batch,
    /// `training.learning_rate`: peak learning rate.
    LearningRate,
    /// `training.learning_rate_schedule`: learning-rate schedule.
    LearningRateSchedule,
    /// `training.warmup`: learning-rate warm-up.
    Warmup,
    /// `training.optimizer`: the optimizer.
    Optimizer,
}

impl AutoKey {
    /// All keys, in run-file order.
    pub const ALL: [Self; 9] = [
        Self::Tuning,
        Self::Delta,
        Self::Clip,
        Self::Epochs,
        Self::Batch,
        Self::LearningRate,
        Self::LearningRateSchedule,
        Self::Warmup,
        Self::Optimizer,
    ];

    /// The key's dotted path.
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
            Self::Optimizer => "training.optimizer",
        }
    }

    /// Whether the key is required when the recipe does not choose it.
    pub(super) fn has_no_fixed_default(self) -> bool {
        matches!(self, Self::Delta | Self::Epochs | Self::Batch | Self::LearningRate)
    }

    /// Whether the recipe chooses the key for this run: for gradient methods in proved mode, and δ
    /// for local DP. In paper mode, a method uses the values stated in its paper.
    pub(super) fn is_chosen_for(self, file: &RunFile) -> bool {
        let (method, paper) = (file.privacy.method, file.privacy.mode == ModeName::Paper);
        match self {
            Self::Delta => method != MethodName::None && !paper,
            Self::Clip => method.is_central() && !paper,
            _ => !method.is_local() && !paper,
        }
    }
}

/// Values for the keys that are `"auto"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// Which parameters are trainable.
    pub tuning: Tuning,
    /// δ; has no effect in a non-private run.
    pub delta: f64,
    /// Gradient clipping; has no effect in a non-private run.
    pub clip: Clip,
    /// Number of epochs.
    pub epochs: u32,
    /// Batch size in privacy units.
    pub batch: u64,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Learning-rate schedule.
    pub learning_rate_schedule: LearningRateSchedule,
    /// Learning-rate warm-up.
    pub warmup: f64,
    /// The optimizer.
    pub optimizer: OptimizerKind,
}

impl Choices {
    /// Placeholder values of the right type, for checking a run file before its data are known.
    pub(super) fn likely(file: &RunFile) -> Self {
        let private = file.privacy.method != MethodName::None;
        let optimizer =
            if private { OptimizerKind::AdamCorrected } else { OptimizerKind::default() };
        Self {
            tuning: Tuning::Lora(LoraSettings::default()),
            delta: 1e-5,
            clip: Clip::Flat(1.0),
            epochs: 1,
            batch: 1,
            learning_rate: 1e-3,
            learning_rate_schedule: LearningRateSchedule::Linear,
            warmup: 0.0,
            optimizer,
        }
    }

    /// Extracts the values from a run file.
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
            optimizer: training.optimizer,
        }
    }

    /// Writes the value of a key into a run file.
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
            AutoKey::Optimizer => training.optimizer = self.optimizer,
        }
    }
}
