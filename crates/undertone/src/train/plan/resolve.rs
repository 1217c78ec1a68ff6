//! What a plan comes to on its data: steps, and noise that spends the budget.

use super::{NoiseSchedule, Plan};
use crate::train::error::{Error, Result};
use serde::Serialize;
use undertone_accounting::schedule::{Ewpba, Passes, Shape, ewpba, shaped};
use undertone_accounting::{Accountant, epsilon};

/// What a plan comes to on its data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resolved {
    /// Privacy units in the training file.
    pub units: usize,
    /// Steps in an epoch.
    pub steps_per_epoch: u64,
    /// The probability with which each unit joins a step; none if the run is not private.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_rate: Option<f64>,
    /// For each epoch; empty if the run is not private.
    pub noise_multipliers: Vec<f64>,
}

impl Plan {
    /// Steps, sampling rate and the noise of each epoch, for so many units.
    pub fn resolve(&self, units: usize) -> Result<Resolved> {
        let training = &self.training;
        if !self.is_private() {
            let steps = (units as u64).div_ceil(training.batch).max(1);
            return Ok(Resolved {
                units,
                steps_per_epoch: steps,
                sampling_rate: None,
                noise_multipliers: Vec::new(),
            });
        }
        let passes = Passes::over(units as u64, training.batch, training.epochs)?;
        let privacy = &self.privacy;
        let delta = privacy.delta.unwrap_or_default();
        let noise_multipliers = match (privacy.epsilon, privacy.noise_multiplier) {
            (Some(target), _) => match privacy.schedule {
                NoiseSchedule::Uniform => {
                    shaped(Shape::Uniform, &passes, 1.0, target, delta)?.noise_multipliers
                }
                NoiseSchedule::Linear => {
                    shaped(Shape::Linear, &passes, privacy.step_distance, target, delta)?.noise_multipliers
                }
                NoiseSchedule::Cosine => {
                    shaped(Shape::Cosine, &passes, privacy.step_distance, target, delta)?.noise_multipliers
                }
                NoiseSchedule::Ewpba => {
                    let asked = Ewpba {
                        epsilon: target,
                        delta,
                        step_distance: privacy.step_distance,
                        reserve: privacy.reserve,
                    };
                    ewpba(&asked, &passes)?.0.noise_multipliers
                }
            },
            (None, Some(noise)) => {
                if privacy.schedule != NoiseSchedule::Uniform {
                    return Err(Error::plan(
                        "a schedule is calibrated to epsilon; with noise_multiplier it is uniform",
                    ));
                }
                // Refuses what the accountant cannot answer for, before anything is computed.
                epsilon(&passes.compose(&[noise]), delta, Accountant::Auto)?;
                vec![noise; training.epochs as usize]
            }
            (None, None) => return Err(Error::plan("[privacy] needs either epsilon or noise_multiplier")),
        };
        Ok(Resolved {
            units,
            steps_per_epoch: passes.steps_per_epoch,
            sampling_rate: Some(passes.sampling_rate),
            noise_multipliers,
        })
    }
}
