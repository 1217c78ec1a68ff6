//! What was, or will be, released about the private data.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Which data sets count as neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Adjacency {
    /// One unit is added or removed; both directions are computed and the worse one counts.
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

/// One release.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    /// A vector plus N(0, σ²I), where one unit moves the vector by at most the sensitivity.
    Gaussian {
        /// Noise standard deviation divided by the clipping norm.
        noise_multiplier: f64,
        /// The farthest one unit can move the release *under the composition's adjacency*, in
        /// clipping norms: 1 for adding or removing a clipped vector, 2 for replacing it, √2 for
        /// replacing a non-negative one.
        sensitivity: f64,
    },
    /// A sum over a Poisson sample of clipped vectors plus N(0, σ²I).
    ///
    /// Each unit joins the sample on its own with the sampling rate; its vector has norm at most 1.
    /// Under replace-one adjacency the old and the new vector may point in opposite directions, and
    /// that is accounted here.
    PoissonGaussian {
        /// Noise standard deviation divided by the clipping norm.
        noise_multiplier: f64,
        /// The probability with which each unit joins the sample.
        sampling_rate: f64,
    },
    /// k-ary randomised response: the true value with probability e^ε / (e^ε + k − 1), else any
    /// other one alike.
    ///
    /// Under add-remove adjacency an absent unit answers for some fixed value, so its absence does
    /// not show.
    RandomisedResponse {
        /// The ε of one response.
        epsilon: f64,
        /// How many values there are.
        categories: u64,
    },
}

/// The limits within which the accountants are certified and tested.
pub mod limits {
    /// Noise multipliers of subsampled events.
    pub const NOISE: std::ops::RangeInclusive<f64> = 0.05..=1e3;
    /// Sampling rates.
    pub const RATE: std::ops::RangeInclusive<f64> = 1e-7..=1.0;
    /// Events in all.
    pub const STEPS: u64 = 10_000_000;
    /// Different parts.
    pub const PARTS: usize = 1_000;
    /// δ of a question.
    pub const DELTA: std::ops::RangeInclusive<f64> = 1e-18..=0.5;
    /// The largest ε that the numerical accountant answers with.
    pub const EPSILON: f64 = 1e3;
}

impl Event {
    /// Checks the parameters.
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
                positive("sampling rate", sampling_rate)?;
                if sampling_rate > 1.0 {
                    return Err(Error::invalid("sampling rate", sampling_rate, "at most 1"));
                }
                if !limits::NOISE.contains(&noise_multiplier) {
                    return Err(Error::invalid(
                        "noise multiplier",
                        noise_multiplier,
                        "between 0.05 and 1000, the certified range of subsampled noise",
                    ));
                }
                if !limits::RATE.contains(&sampling_rate) {
                    return Err(Error::invalid(
                        "sampling rate",
                        sampling_rate,
                        "at least 1e-7, the smallest certified; round it up, which only overstates \
                         ε",
                    ));
                }
                Ok(())
            }
            Event::RandomisedResponse { epsilon, categories } => {
                positive("ε of randomised response", epsilon)?;
                if epsilon > limits::EPSILON {
                    return Err(Error::invalid(
                        "ε of randomised response",
                        epsilon,
                        "at most 1000",
                    ));
                }
                if categories < 2 {
                    return Err(Error::invalid("number of categories", categories, "at least 2"));
                }
                Ok(())
            }
        }
    }

    /// Whether a release of `self` tells no more than one of `other`: the same kind, and no
    /// parameter worse.
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
                RandomisedResponse { epsilon: a, categories: k },
                RandomisedResponse { epsilon: b, categories: l },
            ) => a <= b && k == l,
            _ => false,
        }
    }
}

/// An event that happens `count` times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// What happens.
    pub event: Event,
    /// How often.
    pub count: u64,
}

/// A sequence of releases about the same data. Their order does not matter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Composition {
    /// Which data sets count as neighbours.
    pub adjacency: Adjacency,
    parts: Vec<Part>,
}

impl Composition {
    /// Nothing released yet.
    pub fn new(adjacency: Adjacency) -> Self {
        Self { adjacency, parts: Vec::new() }
    }

    /// `steps` releases of DP-SGD.
    pub fn dp_sgd(noise_multiplier: f64, sampling_rate: f64, steps: u64) -> Self {
        let event = Event::PoissonGaussian { noise_multiplier, sampling_rate };
        Self::new(Adjacency::AddRemove).with(event, steps)
    }

    /// The same with `count` more releases of `event`.
    pub fn with(mut self, event: Event, count: u64) -> Self {
        self.push(event, count);
        self
    }

    /// Adds `count` releases of `event`. Equal events are kept as one part.
    pub fn push(&mut self, event: Event, count: u64) {
        if count == 0 {
            return;
        }
        match self.parts.iter_mut().find(|part| part.event == event) {
            Some(part) => part.count = part.count.saturating_add(count),
            None => self.parts.push(Part { event, count }),
        }
    }

    /// The parts, no two with equal parameters.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// How many releases there are.
    pub fn releases(&self) -> u64 {
        self.parts.iter().fold(0, |n, part| n.saturating_add(part.count))
    }

    /// Checks every part and the limits of the whole.
    pub fn validate(&self) -> Result<()> {
        for part in &self.parts {
            part.event.validate()?;
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
