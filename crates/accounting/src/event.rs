//! Releases about the private data, and their composition.

use crate::selection::NumberOfRuns;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Definition of neighboring datasets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Adjacency {
    /// One unit is added or removed; ε is the maximum of both directions.
    #[default]
    AddRemove,
    /// One unit is replaced by another.
    ReplaceOne,
}

impl std::fmt::Display for Adjacency {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Adjacency::AddRemove => "add-remove",
            Adjacency::ReplaceOne => "replace-one",
        })
    }
}

/// One release (privacy event).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    /// Gaussian mechanism: a vector plus N(0, σ²I). One unit changes the vector by at most the
    /// sensitivity.
    Gaussian {
        /// Noise standard deviation divided by the clipping norm.
        noise_multiplier: f64,
        /// ℓ2 sensitivity of the vector *under the composition's adjacency*, in clipping norms: 1
        /// for adding or removing a clipped vector, 2 for replacing it, √2 for replacing a
        /// non-negative one.
        sensitivity: f64,
    },
    /// Poisson-subsampled Gaussian mechanism: a sum of clipped vectors over a Poisson sample, plus
    /// N(0, σ²I).
    ///
    /// Each unit is sampled independently with the sampling rate; its vector has norm at most 1.
    /// Under replace-one adjacency the old and the new vector may point in opposite directions,
    /// which is accounted for here.
    PoissonGaussian {
        /// Noise standard deviation divided by the clipping norm.
        noise_multiplier: f64,
        /// Probability that each unit is in the sample, in (0, 1].
        sampling_rate: f64,
    },
    /// Mixture-of-Gaussians mechanism: a sum of clipped vectors over a Poisson sample of
    /// *examples*, plus N(0, σ²I), where the unit is a user with several examples.
    ///
    /// Each example is sampled independently with the sampling rate; its vector has norm at most 1.
    /// Only under add-remove adjacency. The proof is in `pld/PROOFS.md`, section 2.1.
    MixtureOfGaussians {
        /// Noise standard deviation divided by the clipping norm of an example.
        noise_multiplier: f64,
        /// Probability that each example is in the sample, in (0, 1].
        sampling_rate: f64,
        /// Maximum number of examples of a user.
        examples_per_user: u64,
    },
    /// k-ary randomized response: returns the true value with probability e^ε / (e^ε + k − 1),
    /// otherwise one of the other values, chosen uniformly.
    ///
    /// Under add-remove adjacency an absent unit responds for some fixed value, so its absence is
    /// not visible.
    RandomizedResponse {
        /// ε of one response.
        epsilon: f64,
        /// Number of possible values, k.
        categories: u64,
    },
    /// [Private selection](crate::selection): the best of a random number of runs, each of which is
    /// at most `steps` steps of a Poisson-subsampled Gaussian.
    Selection {
        /// Distribution of the number of runs.
        runs: NumberOfRuns,
        /// Noise multiplier of every step of a run.
        noise_multiplier: f64,
        /// Sampling rate of every step of a run.
        sampling_rate: f64,
        /// Number of steps of a run.
        steps: u64,
    },
    /// [Exponential mechanism](crate::exponential): a choice with probability ∝ e^score.
    Exponential {
        /// Range of the change of the scores when a unit changes, as the composition's adjacency
        /// defines it: the largest change minus the smallest.
        range: f64,
    },
    /// A [threshold](crate::threshold): entries that only one unit has are released with at most
    /// this probability, as in DP set union. The noise of the entries is an event of its own.
    Threshold {
        /// The probability, which adds to δ.
        delta: f64,
    },
}

/// The ranges in which the accountants are certified and tested.
pub mod limits {
    /// Noise multipliers of subsampled events.
    pub const NOISE_MULTIPLIER: std::ops::RangeInclusive<f64> = 0.05..=1e3;
    /// Sampling rates.
    pub const SAMPLING_RATE: std::ops::RangeInclusive<f64> = 1e-7..=1.0;
    /// Number of examples of a user that are sampled one by one.
    pub const EXAMPLES_PER_USER: std::ops::RangeInclusive<u64> = 1..=256;
    /// Maximum number of releases.
    pub const STEPS: u64 = 10_000_000;
    /// Maximum number of different parts.
    pub const PARTS: usize = 1_000;
    /// δ at which ε is computed.
    pub const DELTA: std::ops::RangeInclusive<f64> = 1e-18..=0.5;
    /// The smallest ε that noise is calibrated for; below it, nothing can be learned.
    pub const LEAST_EPSILON: f64 = 1e-4;
    /// The largest ε that the numerical accountant certifies.
    pub const EPSILON: f64 = 1e3;

    /// Noise multipliers of subsampled events whose unit has up to this many sampled examples.
    pub fn noise_multiplier(examples_per_user: u64) -> std::ops::RangeInclusive<f64> {
        *NOISE_MULTIPLIER.start()..=*NOISE_MULTIPLIER.end() * examples_per_user.max(1) as f64
    }
}

fn validate_rate(sampling_rate: f64) -> Result<()> {
    let rule = match sampling_rate {
        rate if limits::SAMPLING_RATE.contains(&rate) => return Ok(()),
        rate if rate > 1.0 && rate.is_finite() => "at most 1",
        rate if rate > 0.0 && rate.is_finite() => {
            "at least 1e-7, the smallest certified; round it up, which only overstates ε"
        }
        _ => "a finite number above 0",
    };
    Err(Error::invalid("sampling rate", sampling_rate, rule))
}

impl Event {
    /// A step of DP-SGD: with `examples_per_user`, the unit is a user and examples are sampled one
    /// by one; otherwise units are.
    pub fn of_step(
        noise_multiplier: f64,
        sampling_rate: f64,
        examples_per_user: Option<u64>,
    ) -> Self {
        match examples_per_user {
            None => Event::PoissonGaussian { noise_multiplier, sampling_rate },
            Some(examples_per_user) => {
                Event::MixtureOfGaussians { noise_multiplier, sampling_rate, examples_per_user }
            }
        }
    }

    /// Checks that the parameters are in the certified ranges.
    pub fn validate(&self) -> Result<()> {
        let positive = |name, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(Error::invalid(name, value, "a finite number above 0"))
            }
        };
        match *self {
            Event::Gaussian { noise_multiplier, sensitivity } => {
                positive("noise multiplier", noise_multiplier)?;
                positive("sensitivity", sensitivity)?;
                let ratio = noise_multiplier / sensitivity;
                if !(1e-4..=1e9).contains(&ratio) {
                    return Err(Error::invalid(
                        "noise multiplier over sensitivity",
                        ratio,
                        "between 1e-4 and 1e9",
                    ));
                }
                Ok(())
            }
            Event::PoissonGaussian { noise_multiplier, sampling_rate } => {
                positive("noise multiplier", noise_multiplier)?;
                validate_rate(sampling_rate)?;
                if !limits::NOISE_MULTIPLIER.contains(&noise_multiplier) {
                    return Err(Error::invalid(
                        "noise multiplier",
                        noise_multiplier,
                        "between 0.05 and 1000, the certified range of subsampled noise",
                    ));
                }
                Ok(())
            }
            Event::MixtureOfGaussians { noise_multiplier, sampling_rate, examples_per_user } => {
                if !limits::EXAMPLES_PER_USER.contains(&examples_per_user) {
                    return Err(Error::invalid(
                        "number of examples per user",
                        examples_per_user,
                        "from 1 to 256, the certified range of examples sampled one by one",
                    ));
                }
                positive("noise multiplier", noise_multiplier)?;
                validate_rate(sampling_rate)?;
                if !limits::noise_multiplier(examples_per_user).contains(&noise_multiplier) {
                    return Err(Error::invalid(
                        "noise multiplier",
                        noise_multiplier,
                        "between 0.05 and 1000 per example of a user, the certified range of \
                         subsampled noise",
                    ));
                }
                Ok(())
            }
            Event::RandomizedResponse { epsilon, categories } => {
                positive("ε of randomized response", epsilon)?;
                if epsilon > limits::EPSILON {
                    return Err(Error::invalid(
                        "ε of randomized response",
                        epsilon,
                        "at most 1000",
                    ));
                }
                if categories < 2 {
                    return Err(Error::invalid("number of categories", categories, "at least 2"));
                }
                Ok(())
            }
            Event::Selection { runs, noise_multiplier, sampling_rate, steps } => {
                runs.validate()?;
                if !(1..=limits::STEPS).contains(&steps) {
                    return Err(Error::invalid("steps of a run", steps, "from 1 to 10,000,000"));
                }
                Event::PoissonGaussian { noise_multiplier, sampling_rate }.validate()
            }
            Event::Exponential { range } => {
                positive("range of an exponential mechanism", range)?;
                if range > limits::EPSILON {
                    let name = "range of an exponential mechanism";
                    return Err(Error::invalid(name, range, "at most 1000"));
                }
                Ok(())
            }
            Event::Threshold { delta } => {
                if limits::DELTA.contains(&delta) {
                    return Ok(());
                }
                Err(Error::invalid("δ of a threshold", delta, "between 1e-18 and 0.5"))
            }
        }
    }

    /// Whether a release of `self` costs no more privacy than a release of `other`: both are of the
    /// same kind, and no parameter is worse.
    pub fn no_worse_than(&self, other: &Event) -> bool {
        use Event::*;
        match (*self, *other) {
            (
                Gaussian { noise_multiplier: a, sensitivity: s },
                Gaussian { noise_multiplier: b, sensitivity: t },
            ) => a * t >= b * s,
            (
                PoissonGaussian { noise_multiplier: a, sampling_rate: p },
                PoissonGaussian { noise_multiplier: b, sampling_rate: q },
            ) => a >= b && p <= q,
            (
                MixtureOfGaussians { noise_multiplier: a, sampling_rate: p, examples_per_user: k },
                MixtureOfGaussians { noise_multiplier: b, sampling_rate: q, examples_per_user: l },
            ) => a >= b && p <= q && k <= l,
            (
                RandomizedResponse { epsilon: a, categories: k },
                RandomizedResponse { epsilon: b, categories: l },
            ) => a <= b && k == l,
            (
                Selection { runs: r, noise_multiplier: a, sampling_rate: p, steps: m },
                Selection { runs: s, noise_multiplier: b, sampling_rate: q, steps: n },
            ) => r == s && a >= b && p <= q && m <= n,
            (Exponential { range: a }, Exponential { range: b }) => a <= b,
            (Threshold { delta: a }, Threshold { delta: b }) => a <= b,
            _ => false,
        }
    }
}

/// An event that happens `count` times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The repeated event.
    pub event: Event,
    /// Number of releases.
    pub count: u64,
}

/// A composition of releases about the same data, in any order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Composition {
    /// Definition of neighboring datasets.
    pub adjacency: Adjacency,
    parts: Vec<Part>,
}

impl Composition {
    /// The empty composition: nothing is released.
    pub fn new(adjacency: Adjacency) -> Self {
        Self { adjacency, parts: Vec::new() }
    }

    /// `steps` steps of DP-SGD, under add-remove adjacency.
    pub fn dp_sgd(noise_multiplier: f64, sampling_rate: f64, steps: u64) -> Self {
        let event = Event::PoissonGaussian { noise_multiplier, sampling_rate };
        Self::new(Adjacency::AddRemove).with(event, steps)
    }

    /// This composition with `count` more releases of `event`.
    pub fn with(mut self, event: Event, count: u64) -> Self {
        self.push(event, count);
        self
    }

    /// Adds `count` releases of `event`. Equal events share one part.
    pub fn push(&mut self, event: Event, count: u64) {
        if count == 0 {
            return;
        }
        match self.parts.iter_mut().find(|part| part.event == event) {
            Some(part) => part.count = part.count.saturating_add(count),
            None => self.parts.push(Part { event, count }),
        }
    }

    /// The parts, no two with equal events.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Total number of releases.
    pub fn releases(&self) -> u64 {
        self.parts.iter().fold(0, |n, part| n.saturating_add(part.count))
    }

    /// Checks every part, the number of parts and the number of releases.
    pub fn validate(&self) -> Result<()> {
        for part in &self.parts {
            part.event.validate()?;
            if matches!(part.event, Event::MixtureOfGaussians { .. })
                && self.adjacency == Adjacency::ReplaceOne
            {
                return Err(Error::SampledExamples { what: "replace-one adjacency" });
            }
        }
        if self.parts.len() > limits::PARTS {
            return Err(Error::invalid(
                "number of different parts",
                self.parts.len(),
                "at most 1000",
            ));
        }
        if self.releases() > limits::STEPS {
            return Err(Error::invalid(
                "number of releases",
                self.releases(),
                "at most 10,000,000",
            ));
        }
        Ok(())
    }
}
