//! What a plan comes to on its data: steps, and noise that spends the budget.

use super::{Method, ModeName, NoiseSchedule, Plan, RelevanceSource};
use crate::mechanism::forward::Releases;
use crate::train::error::{Error, Result};
use serde::Serialize;
use undertone_accounting::calibrate::noise_multiplier;
use undertone_accounting::schedule::{Ewpba, Passes, Shape, ewpba, shaped};
use undertone_accounting::{Accountant, Event, epsilon};

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
    /// DP-SGD on the records before they are perturbed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptation: Option<Adaptation>,
    /// What is released before the first step: a noised relevance or attention map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Event>,
    /// Of each record, where records are perturbed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub releases: Option<Releases>,
}

/// What DP-SGD on the records comes to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Adaptation {
    /// The noise of each step.
    pub noise_multiplier: f64,
    /// The probability with which each record joins a step.
    pub sampling_rate: f64,
    /// Steps in all.
    pub steps: u64,
}

impl Adaptation {
    /// What one step releases.
    pub fn event(&self) -> Event {
        let Self { noise_multiplier, sampling_rate, .. } = *self;
        Event::PoissonGaussian { noise_multiplier, sampling_rate }
    }
}

impl NoiseSchedule {
    /// The shape of the noise over the epochs; EWPBA finds its own.
    pub(super) fn shape(self) -> Option<Shape> {
        match self {
            Self::Uniform => Some(Shape::Uniform),
            Self::Linear => Some(Shape::Linear),
            Self::Exponential => Some(Shape::Exponential),
            Self::Cosine => Some(Shape::Cosine),
            Self::Step => Some(Shape::Step),
            Self::Ewpba => None,
        }
    }
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
                adaptation: None,
                before: None,
                releases: None,
            });
        }
        let privacy = &self.privacy;
        let delta = privacy.delta.unwrap_or_default();
        let before = self.map_event(units, delta)?;
        let passes =
            Passes { before, ..Passes::over(units as u64, training.batch, training.epochs)? };
        let noise_multipliers = match (privacy.epsilon, privacy.noise_multiplier) {
            (Some(target), _) => match privacy.schedule.shape() {
                Some(shape) => {
                    let ratio = if shape == Shape::Uniform { 1.0 } else { privacy.step_distance };
                    shaped(shape, &passes, ratio, target, delta)?.noise_multipliers
                }
                None => {
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
            (None, None) => {
                return Err(Error::plan("[privacy] needs either epsilon or noise_multiplier"));
            }
        };
        Ok(Resolved {
            units,
            steps_per_epoch: passes.steps_per_epoch,
            sampling_rate: Some(passes.sampling_rate),
            noise_multipliers,
            adaptation: None,
            before,
            releases: None,
        })
    }

    /// The release of a relevance map, if the method makes one: with noise that by itself would
    /// cost its share of ε.
    fn map_event(&self, units: usize, delta: f64) -> Result<Option<Event>> {
        let privacy = &self.privacy;
        let (Method::RapFt, ModeName::Proved) = (privacy.method, privacy.mode) else {
            return Ok(None);
        };
        let (RelevanceSource::Noised { share, examples }, Some(target)) =
            (&privacy.rap_ft.relevance, privacy.epsilon)
        else {
            return Ok(None);
        };
        let sampling_rate = (*examples as f64 / units.max(1) as f64).min(1.0);
        let noise_multiplier =
            noise_multiplier(share * target, delta, sampling_rate, 1, Accountant::Auto)?.noise;
        Ok(Some(Event::PoissonGaussian { noise_multiplier, sampling_rate }))
    }
}
