//! A plan resolved against its data: steps, sampling rate and calibrated noise multipliers.

use crate::file::ReleaseKind;
use serde::{Deserialize, Serialize};
use undertone_accounting::Event;

/// A plan resolved against its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resolved {
    /// Number of privacy units from which the sampling rate, steps and noise are computed: the
    /// declared number (`privacy.units`), or that of the training file.
    pub units: usize,
    /// Number of steps per epoch.
    pub steps_per_epoch: u64,
    /// Sampling rate: the probability with which each unit is included in a step (Poisson
    /// sampling). `None` unless the method is a central-DP method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_rate: Option<f64>,
    /// Noise multiplier of each epoch; empty for a non-private run.
    pub noise_multipliers: Vec<f64>,
    /// Set if the unit is a user and steps sample examples one by one (`privacy.sampling`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<SampledExamples>,
    /// In local DP, the DP-SGD adaptation that precedes perturbing the embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptation: Option<Adaptation>,
    /// The release that precedes the first step: a noisy relevance or attention map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Event>,
    /// The release of all metrics on private validation data together (`evaluation.epsilon`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<Event>,
    /// In local DP, the releases of each example's perturbed embedding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<Releases>,
    /// The reservation of the run's budget, if it was started with a register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<Registered>,
}

/// The examples of users that are sampled one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledExamples {
    /// Number of examples in the training file, without those beyond a user's maximum.
    pub number: usize,
    /// Maximum number of examples of a user.
    pub per_user: u64,
}

impl std::fmt::Display for SampledExamples {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "examples one by one, at most {} of each user", self.per_user)
    }
}

impl Resolved {
    /// Number of units, or of examples, each of which joins a step with the sampling rate.
    pub fn sampled(&self) -> usize {
        self.examples.map_or(self.units, |examples| examples.number)
    }

    /// The accounting event of a step of a central-DP method.
    pub fn step(&self, noise_multiplier: f64) -> Event {
        let per_user = self.examples.map(|examples| examples.per_user);
        Event::of_step(noise_multiplier, self.sampling_rate.unwrap_or(1.0), per_user)
    }
}

/// The reservation of a run's budget in a register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// File of the register.
    pub file: std::path::PathBuf,
    /// The register's own id.
    pub register: String,
    /// The data set, as name@version.
    pub dataset: String,
    /// The reservation's id.
    pub reservation: String,
    /// Hash of the reservation's line.
    pub hash: String,
}

/// DP-SGD adaptation of the whole model before embeddings are perturbed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adaptation {
    /// Noise multiplier of each step.
    pub noise_multiplier: f64,
    /// Sampling rate: the probability with which each unit is included in a step.
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

/// All releases of a single example's embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Releases {
    /// How often an embedding is released, and how the noise of its releases is correlated.
    pub release: ReleaseKind,
    /// Noise multiplier of each epoch: the standard deviation of the noise divided by the norm
    /// bound C.
    pub noise_multipliers: Vec<f64>,
    /// ℓ2 sensitivity: how far replacing an example can move its release, in units of C.
    pub sensitivity: f64,
    /// Maximum number of examples per privacy unit.
    pub records_per_unit: u64,
}
