//! What a plan resolves to on its data: steps, sampling rate, calibrated noise.

use crate::file::ReleaseKind;
use serde::{Deserialize, Serialize};
use undertone_accounting::Event;

/// What a plan resolves to on its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resolved {
    /// Privacy units in the training file.
    pub units: usize,
    /// Steps in an epoch.
    pub steps_per_epoch: u64,
    /// Probability with which each unit joins a step (Poisson sampling); none if the run does not
    /// perturb sums of gradients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_rate: Option<f64>,
    /// Noise multiplier of each epoch; empty if the run is non-private.
    pub noise_multipliers: Vec<f64>,
    /// DP-SGD on the examples before their embeddings are perturbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptation: Option<Adaptation>,
    /// What is released before the first step: a noisy relevance or attention map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Event>,
    /// Releases of each example's perturbed embedding, in local DP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<Releases>,
}

/// DP-SGD on the examples before their embeddings are perturbed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adaptation {
    /// Noise multiplier of each step.
    pub noise_multiplier: f64,
    /// Probability with which each unit joins a step.
    pub sampling_rate: f64,
    /// Steps in all.
    pub steps: u64,
}

impl Adaptation {
    /// The accounting event of one step.
    pub fn event(&self) -> Event {
        let Self { noise_multiplier, sampling_rate, .. } = *self;
        Event::PoissonGaussian { noise_multiplier, sampling_rate }
    }
}

/// All releases of one example's embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Releases {
    /// How often an embedding is released, and how the releases' noises belong together.
    pub release: ReleaseKind,
    /// Standard deviation of the noise over the norm bound C, by epoch.
    pub noise_multipliers: Vec<f64>,
    /// ℓ2 distance by which replacing an example moves its release, in units of C.
    pub sensitivity: f64,
    /// The most examples of a privacy unit.
    pub records_per_unit: u64,
}
