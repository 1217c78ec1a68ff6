//! Schedules of the noise multiplier over the epochs.

use crate::error::Result;
use undertone_accounting::schedule::{Ewpba, Passes, Shape, ewpba, shaped};
use undertone_run::{NoiseSchedule, PrivacySection};

/// A noise schedule with its hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// A fixed shape over the epochs; calibration determines its scale.
    Shaped {
        shape: Shape,
        /// Ratio of the first epoch's noise multiplier to the last epoch's.
        step_distance: f64,
    },
    /// EWPBA, EW-FT's epoch-weighted privacy budget allocation, which also determines the shape.
    Ewpba {
        /// S of EW-FT's Algorithm 2.
        step_distance: f64,
        /// The ε that the search initially holds back.
        reserve: f64,
    },
}

impl Schedule {
    /// The schedule specified in a run file.
    pub fn of(privacy: &PrivacySection) -> Self {
        let step_distance = privacy.step_distance;
        let shape = match privacy.schedule {
            NoiseSchedule::Uniform => Shape::Uniform,
            NoiseSchedule::Linear => Shape::Linear,
            NoiseSchedule::Exponential => Shape::Exponential,
            NoiseSchedule::Cosine => Shape::Cosine,
            NoiseSchedule::Step => Shape::Step,
            NoiseSchedule::Ewpba => {
                return Self::Ewpba { step_distance, reserve: privacy.reserve };
            }
        };
        Self::Shaped { shape, step_distance }
    }

    /// Whether every epoch has the same noise multiplier.
    pub fn is_uniform(&self) -> bool {
        matches!(self, Self::Shaped { shape: Shape::Uniform, .. })
    }

    /// Noise multiplier of each epoch, for Poisson-sampled steps that together spend (ε, δ).
    pub fn calibrate(&self, passes: &Passes, epsilon: f64, delta: f64) -> Result<Vec<f64>> {
        Ok(match *self {
            Self::Shaped { shape, step_distance } => {
                let ratio = if shape == Shape::Uniform { 1.0 } else { step_distance };
                shaped(shape, passes, ratio, epsilon, delta)?.noise_multipliers
            }
            Self::Ewpba { step_distance, reserve } => {
                let asked = Ewpba { epsilon, delta, step_distance, reserve };
                ewpba(&asked, passes)?.0.noise_multipliers
            }
        })
    }

    /// Noise multiplier of each epoch relative to that of the last epoch.
    pub fn factors(&self, passes: &Passes, epsilon: f64, delta: f64) -> Result<Vec<f64>> {
        match *self {
            Self::Shaped { shape, step_distance } => {
                Ok(shape.factors(passes.epochs, step_distance))
            }
            Self::Ewpba { .. } => {
                let list = self.calibrate(passes, epsilon, delta)?;
                let last = list.last().copied().unwrap_or(1.0);
                Ok(list.iter().map(|noise| noise / last).collect())
            }
        }
    }
}
