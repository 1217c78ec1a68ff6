//! Compositions of several runs.

use crate::error::Result;
use undertone_accounting::{Accountant, Bounds, Composition, Event, epsilon};

/// Bounds on ε at δ; the upper bound is infinite where the accountant certifies none.
pub fn at_delta(releases: &Composition, delta: f64) -> Result<Bounds> {
    use undertone_accounting::Error as Accounting;
    if releases.releases() == 0 {
        return Ok(Bounds::exact(0.0));
    }
    match epsilon(releases, delta, Accountant::Auto) {
        Ok(answer) => Ok(answer.epsilon),
        Err(Accounting::LossTooLarge { .. }) => {
            Ok(Bounds { lower: 0.0, estimate: f64::INFINITY, upper: f64::INFINITY })
        }
        Err(other) => Err(other.into()),
    }
}

/// Both compositions together.
pub fn join(first: &Composition, second: &Composition) -> Composition {
    let mut all = first.clone();
    second.parts().iter().for_each(|part| all.push(part.event, part.count));
    all
}

/// The same releases with noise larger by a factor.
pub fn quieter(releases: &Composition, factor: f64) -> Composition {
    let mut all = Composition::new(releases.adjacency);
    for part in releases.parts() {
        let mut event = part.event;
        match &mut event {
            Event::Gaussian { noise_multiplier, .. }
            | Event::PoissonGaussian { noise_multiplier, .. }
            | Event::MixtureOfGaussians { noise_multiplier, .. }
            | Event::Selection { noise_multiplier, .. } => *noise_multiplier *= factor,
            Event::RandomizedResponse { epsilon, .. } => *epsilon /= factor,
            Event::Exponential { range } => *range /= factor,
            Event::Threshold { .. } => {}
        }
        all.push(event, part.count);
    }
    all
}
