//! A plan resolved on its data: steps, sampling rate, calibrated noise multipliers.

use crate::file::ReleaseKind;
use serde::{Deserialize, Serialize};
use undertone_accounting::Event;

/// A plan resolved on its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resolved {
    /// Number of privacy units that rate, steps and noise are computed from: the declared one
    /// (`privacy.units`), or that of the training file.
    pub units: usize,
    /// Number of steps in an epoch.
    pub steps_per_epoch: u64,
    /// Sampling rate: probability with which each unit joins a step (Poisson sampling); none unless
    /// the method is one of central DP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_rate: Option<f64>,
    /// Noise multiplier of each epoch; empty if the run is non-private.
    pub noise_multipliers: Vec<f64>,
    /// DP-SGD adaptation before embeddings are perturbed, in local DP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptation: Option<Adaptation>,
    /// The release before the first step: a noisy relevance or attention map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Event>,
    /// Releases of each example's perturbed embedding, in local DP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<Releases>,
}

/// DP-SGD adaptation of the whole model before embeddings are perturbed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adaptation {
    /// Noise multiplier of each step.
    pub noise_multiplier: f64,
    /// Sampling rate: probability with which each unit joins a step.
    pub sampling_rate: f64,
    /// Number of steps.
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
    /// How often an embedding is released, and how the noise of its releases is correlated.
    pub release: ReleaseKind,
    /// Noise multiplier by epoch: standard deviation of the noise over the norm bound C.
    pub noise_multipliers: Vec<f64>,
    /// ℓ2 sensitivity: distance by which replacing an example moves its release, in units of C.
    pub sensitivity: f64,
    /// The most examples of a privacy unit.
    pub records_per_unit: u64,
}
