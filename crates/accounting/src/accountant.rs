//! ε(δ) and δ(ε) by any accountant.

use crate::event::{Adjacency, Event, limits};
use crate::pld::{self, Precision};
use crate::sum::Sum;
use crate::{Bounds, Composition, Error, Result, gaussian, gdp, rdp, threshold};
use serde::{Deserialize, Serialize};

/// Accountant to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Accountant {
    /// `gaussian` without subsampling, `rdp` for private selection, otherwise `prv`; always
    /// certified.
    #[default]
    Auto,
    /// Numerical composition of privacy loss distributions (PRV accountant), with certified lower
    /// and upper bounds.
    Prv,
    /// Rényi DP (RDP): a certified but looser upper bound.
    Rdp,
    /// Gaussian DP (GDP) by the central limit theorem: an approximation, not a bound.
    Gdp,
    /// Closed form of the Gaussian mechanism, only without subsampling.
    Gaussian,
}

impl std::fmt::Display for Accountant {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Accountant::Auto => "auto",
            Accountant::Prv => "prv",
            Accountant::Rdp => "rdp",
            Accountant::Gdp => "gdp",
            Accountant::Gaussian => "gaussian",
        })
    }
}

/// A point of a privacy curve, as an accountant found it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Answer {
    /// Bounds on ε, or the given ε.
    pub epsilon: Bounds,
    /// Bounds on δ, or the given δ.
    pub delta: Bounds,
    /// The accountant that was used, never `auto`.
    pub accountant: Accountant,
    /// Whether the upper bound is proved.
    pub certified: bool,
    /// Neighboring relation between data sets.
    pub adjacency: Adjacency,
}

/// ε at a given δ.
pub fn epsilon(composition: &Composition, delta: f64, accountant: Accountant) -> Result<Answer> {
    epsilon_to(composition, delta, accountant, Precision::default())
}

/// ε at a given δ, with a chosen precision of the numerical accountant.
pub fn epsilon_to(
    composition: &Composition,
    delta: f64,
    accountant: Accountant,
    precision: Precision,
) -> Result<Answer> {
    composition.validate()?;
    check_delta(delta)?;
    if let Some(split) = threshold::split(composition) {
        let of_others =
            |others: &Composition, delta| epsilon_to(others, delta, accountant, precision);
        return split.epsilon(delta, of_others);
    }
    let accountant = resolve(composition, accountant)?;
    let epsilon = match accountant {
        Accountant::Gaussian => gaussian::epsilon(unsampled_mu(composition), delta),
        Accountant::Rdp => rdp::epsilon(composition, delta, &rdp::default_orders())?,
        Accountant::Gdp => gdp::epsilon(composition, delta)?,
        Accountant::Prv | Accountant::Auto => pld::epsilon(composition, delta, precision)?,
    };
    Ok(Answer {
        epsilon,
        delta: Bounds::exact(delta),
        accountant,
        certified: accountant != Accountant::Gdp,
        adjacency: composition.adjacency,
    })
}

/// δ at a given ε.
pub fn delta(composition: &Composition, epsilon: f64, accountant: Accountant) -> Result<Answer> {
    composition.validate()?;
    check_epsilon(epsilon)?;
    if let Some(split) = threshold::split(composition) {
        let whole = delta(&split.others, epsilon, accountant)?;
        let at = |others: &Composition, at: f64| match at > 0.0 {
            true => Ok(delta(others, at, accountant)?.delta),
            false => Ok(crate::curve(others, &[0.0], accountant)?[0].delta),
        };
        return Ok(Answer { delta: split.delta(epsilon, at)?, ..whole });
    }
    let accountant = resolve(composition, accountant)?;
    let delta = match accountant {
        Accountant::Gaussian => gaussian::delta(unsampled_mu(composition), epsilon),
        Accountant::Rdp => rdp::delta(composition, epsilon, &rdp::default_orders())?,
        Accountant::Gdp => gdp::delta(composition, epsilon)?,
        Accountant::Prv | Accountant::Auto => {
            pld::delta(composition, epsilon, Precision::default())?
        }
    };
    Ok(Answer {
        epsilon: Bounds::exact(epsilon),
        delta,
        accountant,
        certified: accountant != Accountant::Gdp,
        adjacency: composition.adjacency,
    })
}

/// μ of the Gaussian mechanism that a composition without subsampling is equivalent to.
pub(crate) fn unsampled_mu(composition: &Composition) -> f64 {
    // A composition may have a thousand parts of very different sizes, so the sum is compensated.
    let squared: Sum = composition
        .parts()
        .iter()
        .map(|part| {
            let shift = match part.event {
                Event::Gaussian { noise_multiplier, sensitivity } => sensitivity / noise_multiplier,
                Event::PoissonGaussian { noise_multiplier, .. } => match composition.adjacency {
                    Adjacency::AddRemove => 1.0 / noise_multiplier,
                    Adjacency::ReplaceOne => 2.0 / noise_multiplier,
                },
                Event::MixtureOfGaussians { noise_multiplier, examples_per_user, .. } => {
                    examples_per_user as f64 / noise_multiplier
                }
                Event::RandomizedResponse { .. }
                | Event::Selection { .. }
                | Event::Exponential { .. }
                | Event::Threshold { .. } => 0.0,
            };
            part.count as f64 * shift * shift
        })
        .collect();
    squared.total().sqrt()
}

pub(crate) fn is_unsampled(composition: &Composition) -> bool {
    composition.parts().iter().all(|part| match part.event {
        Event::Gaussian { .. } => true,
        Event::PoissonGaussian { sampling_rate, .. }
        | Event::MixtureOfGaussians { sampling_rate, .. } => sampling_rate == 1.0,
        Event::RandomizedResponse { .. }
        | Event::Selection { .. }
        | Event::Exponential { .. }
        | Event::Threshold { .. } => false,
    })
}

/// Whether only Rényi DP accounts for a composition: it has a private selection or an exponential
/// mechanism.
pub(crate) fn needs_rdp(composition: &Composition) -> bool {
    composition
        .parts()
        .iter()
        .any(|part| matches!(part.event, Event::Selection { .. } | Event::Exponential { .. }))
}

/// Whether a user's examples are sampled one by one in some part.
pub(crate) fn samples_examples(composition: &Composition) -> bool {
    let parts = composition.parts();
    parts.iter().any(|part| matches!(part.event, Event::MixtureOfGaussians { .. }))
}

fn resolve(composition: &Composition, accountant: Accountant) -> Result<Accountant> {
    if samples_examples(composition) {
        let what = match accountant {
            _ if needs_rdp(composition) => {
                Some("Rényi DP, which private selections and exponential mechanisms need,")
            }
            Accountant::Rdp => Some("the rdp accountant"),
            Accountant::Gdp => Some("the gdp accountant"),
            Accountant::Auto | Accountant::Prv | Accountant::Gaussian => None,
        };
        if let Some(what) = what {
            return Err(Error::SampledExamples { what });
        }
    }
    match accountant {
        Accountant::Auto | Accountant::Rdp if needs_rdp(composition) => Ok(Accountant::Rdp),
        Accountant::Prv if needs_rdp(composition) => Err(Error::OnlyRdp { accountant: "prv" }),
        Accountant::Gaussian if needs_rdp(composition) => {
            Err(Error::OnlyRdp { accountant: "gaussian" })
        }
        Accountant::Auto if is_unsampled(composition) => Ok(Accountant::Gaussian),
        Accountant::Auto => Ok(Accountant::Prv),
        Accountant::Gaussian if !is_unsampled(composition) => Err(Error::Unsupported {
            accountant: "gaussian",
            what: "subsampling or randomized response",
        }),
        other => Ok(other),
    }
}

pub(crate) fn check_delta(delta: f64) -> Result<()> {
    if limits::DELTA.contains(&delta) {
        return Ok(());
    }
    let rule = if delta > 0.0 && delta < 1.0 {
        "between 1e-18 and 0.5, the certified range"
    } else {
        "above 0 and below 1"
    };
    Err(Error::invalid("δ", delta, rule))
}

/// A target that noise is calibrated to.
pub(crate) fn check_target(epsilon: f64) -> Result<()> {
    check_epsilon(epsilon)?;
    if epsilon < limits::LEAST_EPSILON {
        return Err(Error::invalid("ε", epsilon, "at least 1e-4, or nothing is learned"));
    }
    Ok(())
}

pub(crate) fn check_epsilon(epsilon: f64) -> Result<()> {
    if epsilon > 0.0 && epsilon <= limits::EPSILON {
        return Ok(());
    }
    let rule = if epsilon > limits::EPSILON {
        "at most 1000, the certified range"
    } else {
        "a finite number above 0"
    };
    Err(Error::invalid("ε", epsilon, rule))
}
