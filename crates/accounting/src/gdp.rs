//! Gaussian differential privacy (GDP) by the central limit theorem: an approximation, not a bound.
//!
//! Many weak events compose to nearly a Gaussian mechanism with μ² = Σ steps · q² (e^{1/σ²} − 1)
//! (Bu, Dong, Long, Su 2020). The true ε is often larger than this result, so it serves only for
//! comparison and is always labeled as an approximation.

use crate::event::{Adjacency, Event};
use crate::{Bounds, Composition, Error, Result, gaussian};

/// μ of the limiting Gaussian mechanism.
pub fn mu(composition: &Composition) -> Result<f64> {
    composition.validate()?;
    let mut squared = 0.0;
    for part in composition.parts() {
        squared += part.count as f64
            * match part.event {
                Event::Gaussian { noise_multiplier, sensitivity } => {
                    (sensitivity / noise_multiplier).powi(2)
                }
                Event::PoissonGaussian { noise_multiplier, sampling_rate } => {
                    if composition.adjacency == Adjacency::ReplaceOne {
                        return Err(Error::Unsupported {
                            accountant: "gdp",
                            what: "Poisson sampling under replace-one adjacency",
                        });
                    }
                    sampling_rate.powi(2) * noise_multiplier.powi(-2).exp_m1()
                }
                Event::MixtureOfGaussians { .. } => {
                    return Err(Error::SampledExamples { what: "the gdp accountant" });
                }
                Event::RandomizedResponse { .. } => {
                    return Err(Error::Unsupported {
                        accountant: "gdp",
                        what: "randomized response",
                    });
                }
                Event::Threshold { .. } => {
                    return Err(Error::Unsupported { accountant: "gdp", what: "thresholds" });
                }
                Event::Selection { .. } | Event::Exponential { .. } => {
                    return Err(Error::OnlyRdp { accountant: "gdp" });
                }
            };
    }
    if squared.is_finite() {
        Ok(squared.sqrt())
    } else {
        Err(Error::LossTooLarge { limit: f64::MAX })
    }
}

/// ε(δ) in the limit: an approximation.
pub fn epsilon(composition: &Composition, delta: f64) -> Result<Bounds> {
    Ok(Bounds::exact(gaussian::epsilon(mu(composition)?, delta).estimate))
}

/// δ(ε) in the limit: an approximation.
pub fn delta(composition: &Composition, epsilon: f64) -> Result<Bounds> {
    Ok(Bounds::exact(gaussian::delta(mu(composition)?, epsilon).estimate))
}
