//! Noise schedules: a noise multiplier for each epoch, calibrated together to one (ε, δ).
//!
//! Epoch e has noise multiplier σ_e, and the ledger has one part (σ_e, q, steps) for each epoch;
//! heterogeneous composition needs no more. Every schedule is calibrated to the certified upper
//! bound of ε.

mod ewpba;
mod shape;

pub use ewpba::{Ewpba, ewpba};
pub use shape::{Shape, shaped};

use crate::{Answer, Composition, Error, Event, Result, limits};
use serde::{Deserialize, Serialize};

/// The sampling plan of a training run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Passes {
    /// Probability that each unit is in a step's Poisson sample, or each example of a user.
    pub sampling_rate: f64,
    /// Number of steps per epoch.
    pub steps_per_epoch: u64,
    /// Number of epochs.
    pub epochs: u32,
    /// A release before the first step, such as the statistics that guide noise allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Event>,
    /// Another release beside the steps, such as metrics with noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Event>,
    /// If examples are sampled one by one and the unit is a user: the maximum number of examples of
    /// a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples_per_user: Option<u64>,
}

impl Passes {
    /// Epochs over `examples` in Poisson batches of expected size `batch`. An epoch has ⌊examples /
    /// batch⌋ steps, but at least one.
    pub fn over(examples: u64, batch: u64, epochs: u32) -> Result<Passes> {
        if examples == 0 {
            return Err(Error::invalid("number of examples", examples, "at least 1"));
        }
        if batch == 0 || batch > examples {
            let rule = format!("between 1 and the number of examples, {examples}");
            return Err(Error::invalid("batch", batch, rule));
        }
        if epochs == 0 {
            return Err(Error::invalid("number of epochs", epochs, "at least 1"));
        }
        Ok(Passes {
            sampling_rate: batch as f64 / examples as f64,
            steps_per_epoch: examples / batch,
            epochs,
            before: None,
            beside: None,
            examples_per_user: None,
        })
    }

    /// Total number of steps.
    pub fn steps(&self) -> u64 {
        self.steps_per_epoch.saturating_mul(u64::from(self.epochs))
    }

    /// A step with this noise multiplier.
    pub fn step(&self, noise_multiplier: f64) -> Event {
        Event::of_step(noise_multiplier, self.sampling_rate, self.examples_per_user)
    }

    /// The noise multipliers that the accountants cover.
    pub(crate) fn noise_range(&self) -> (f64, f64) {
        limits::noise_multiplier(self.examples_per_user.unwrap_or(1)).into_inner()
    }

    /// The composition with one noise multiplier for each epoch.
    pub fn compose(&self, noise_multipliers: &[f64]) -> Composition {
        let mut composition = Composition::new(Default::default());
        for event in self.before.into_iter().chain(self.beside) {
            composition.push(event, 1);
        }
        for &noise_multiplier in noise_multipliers {
            composition.push(self.step(noise_multiplier), self.steps_per_epoch);
        }
        composition
    }
}

/// A calibrated noise schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// From the first epoch to the last.
    pub noise_multipliers: Vec<f64>,
    /// The certified ε of the whole schedule.
    pub answer: Answer,
}
