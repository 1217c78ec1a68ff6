//! Noise over the epochs, as a run file asks for it.

use crate::error::Result;
use undertone_accounting::schedule::{Ewpba, Passes, Shape, ewpba, shaped};
use undertone_run::{NoiseSchedule, PrivacySection};

/// A schedule with its hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// A fixed shape; only its scale is calibrated.
    Shaped {
        /// The shape over the epochs.
        shape: Shape,
        /// How far apart first and last epoch are.
        step_distance: f64,
    },
    /// EW-FT's epoch-weighted privacy budget allocation, which finds its own shape.
    Ewpba {
        /// S of Algorithm 2.
        step_distance: f64,
        /// The part of ε that it starts from holding back.
        reserve: f64,
    },
}

impl Schedule {
    /// The schedule of a run file.
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

    /// Whether every epoch has the same noise.
    pub fn is_uniform(&self) -> bool {
        matches!(self, Self::Shaped { shape: Shape::Uniform, .. })
    }

    /// The noise multipliers by epoch that spend (ε, δ) in Poisson-sampled steps.
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

    /// The noise of each epoch relative to the last one's.
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
