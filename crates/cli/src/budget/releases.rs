//! The arguments that describe releases.

use crate::failure::{Failure, Outcome};
use clap::Args;
use undertone_accounting::schedule::Passes;
use undertone_accounting::{Adjacency, Composition, Event};

/// The sampling: a rate and a number of steps, or passes over the data.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Sampling")]
pub struct Sampling {
    /// Probability that a unit is sampled in a step
    #[arg(long, value_name = "Q", requires = "steps")]
    pub sampling_rate: Option<f64>,
    /// Number of steps
    #[arg(long, value_name = "N", requires = "sampling_rate")]
    pub steps: Option<u64>,
    /// Number of examples; alternative to `--sampling-rate` and `--steps`
    #[arg(
        long,
        value_name = "N",
        requires_all = ["batch", "epochs"],
        conflicts_with_all = ["sampling_rate", "steps"]
    )]
    pub examples: Option<u64>,
    /// Expected batch size of Poisson sampling
    #[arg(long, value_name = "N", requires = "examples")]
    pub batch: Option<u64>,
    /// Number of epochs, each of ⌊examples / batch⌋ steps; a part of an epoch is rounded up to
    /// whole steps
    #[arg(long, value_name = "N", requires = "examples", value_parser = epochs)]
    pub epochs: Option<f64>,
    /// Maximum number of examples of a user; makes the user the unit, of whom each example is
    /// sampled by itself
    #[arg(long, value_name = "K")]
    pub examples_per_user: Option<u64>,
}

impl Sampling {
    /// (rate, steps), if either was given.
    pub fn rate_and_steps(&self) -> Outcome<Option<(f64, u64)>> {
        if let (Some(rate), Some(steps)) = (self.sampling_rate, self.steps) {
            return Ok(Some((rate, steps)));
        }
        let (Some(examples), Some(batch), Some(epochs)) = (self.examples, self.batch, self.epochs)
        else {
            return Ok(None);
        };
        let Passes { sampling_rate, steps_per_epoch, .. } = Passes::over(examples, batch, 1)?;
        // Exact for a whole number of epochs.
        let whole = epochs.trunc();
        let of_rest = ((epochs - whole) * steps_per_epoch as f64 - 1e-9).ceil().max(0.0) as u64;
        let steps = (whole as u64).saturating_mul(steps_per_epoch).saturating_add(of_rest);
        Ok(Some((sampling_rate, steps.max(1))))
    }
}

/// The error if `--examples-per-user` is given where no examples are sampled, or where their
/// sampling is not accounted for.
pub fn not_for_users() -> Failure {
    Failure::arguments(
        "--examples-per-user is for the steps of one training run: give --noise-multiplier and the \
         sampling, without --phase, --releases or a private selection",
    )
}

/// Parses a positive number of epochs.
fn epochs(text: &str) -> Result<f64, String> {
    let epochs = text.parse::<f64>().ok();
    epochs
        .filter(|epochs| *epochs > 0.0 && *epochs <= f64::from(u32::MAX))
        .ok_or_else(|| "must be a number above 0, such as 3 or 2.5".to_owned())
}

/// All releases of a computation.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "What is released")]
pub struct Releases {
    /// Noise standard deviation divided by the clipping norm
    #[arg(long, value_name = "SIGMA")]
    pub noise_multiplier: Option<f64>,
    /// Phase of training: noise multiplier, sampling rate, number of steps (repeatable)
    #[arg(long, value_name = "SIGMA,Q,STEPS", value_parser = phase)]
    pub phase: Vec<Phase>,
    /// Number of Gaussian releases without sampling (local DP)
    #[arg(
        long,
        value_name = "N",
        requires = "noise_multiplier",
        conflicts_with_all = ["sampling_rate", "steps", "examples"]
    )]
    pub releases: Option<u64>,
    /// Sensitivity of a release without sampling to one unit, in clipping norms [default: 2 for
    /// replace-one, 1 for add-remove]
    #[arg(long, value_name = "DELTA", requires = "releases")]
    pub sensitivity: Option<f64>,
    /// Randomized responses: ε of each, number of values, number of responses (repeatable)
    #[arg(long, value_name = "EPSILON,K[,N]", value_parser = response)]
    pub response: Vec<Response>,
    /// Definition of neighboring datasets [default: add-remove with sampling, otherwise
    /// replace-one]
    #[arg(long, value_enum)]
    pub adjacency: Option<Adjacency>,
    #[command(flatten)]
    pub sampling: Sampling,
}

/// A phase of training.
#[derive(Debug, Clone, Copy)]
pub struct Phase(f64, f64, u64);

/// Randomized responses of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Response(f64, u64, u64);

fn numbers<const N: usize>(text: &str) -> Option<[&str; N]> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    parts.try_into().ok()
}

fn phase(text: &str) -> Result<Phase, String> {
    let problem =
        || format!("{text:?} is not of the form SIGMA,Q,STEPS, such as 0.6,0.000475,2104");
    let [sigma, rate, steps] = numbers(text).ok_or_else(problem)?;
    match (sigma.parse(), rate.parse(), steps.parse()) {
        (Ok(sigma), Ok(rate), Ok(steps)) => Ok(Phase(sigma, rate, steps)),
        _ => Err(problem()),
    }
}

fn response(text: &str) -> Result<Response, String> {
    let problem = || format!("{text:?} is not of the form EPSILON,K or EPSILON,K,N, such as 2,4");
    let [epsilon, k, n] =
        numbers(text).or_else(|| numbers(text).map(|[e, k]| [e, k, "1"])).ok_or_else(problem)?;
    match (epsilon.parse(), k.parse(), n.parse()) {
        (Ok(epsilon), Ok(k), Ok(n)) => Ok(Response(epsilon, k, n)),
        _ => Err(problem()),
    }
}

impl Releases {
    pub fn adjacency(&self) -> Adjacency {
        let sampled =
            !self.phase.is_empty() || (self.noise_multiplier.is_some() && self.releases.is_none());
        match self.adjacency {
            Some(adjacency) => adjacency,
            None if sampled => Adjacency::AddRemove,
            None => Adjacency::ReplaceOne,
        }
    }

    pub fn composition(&self) -> Outcome<Composition> {
        let adjacency = self.adjacency();
        let per_user = self.sampling.examples_per_user;
        let is_one_run =
            self.noise_multiplier.is_some() && self.releases.is_none() && self.phase.is_empty();
        if per_user.is_some() && !is_one_run {
            return Err(not_for_users());
        }
        let mut composition = Composition::new(adjacency);
        for &Phase(noise_multiplier, sampling_rate, steps) in &self.phase {
            push(
                &mut composition,
                Event::PoissonGaussian { noise_multiplier, sampling_rate },
                steps,
            )?;
        }
        for &Response(epsilon, categories, count) in &self.response {
            push(&mut composition, Event::RandomizedResponse { epsilon, categories }, count)?;
        }
        if let Some(noise_multiplier) = self.noise_multiplier {
            if let Some(count) = self.releases {
                let sensitivity = self.sensitivity.unwrap_or(match adjacency {
                    Adjacency::AddRemove => 1.0,
                    Adjacency::ReplaceOne => 2.0,
                });
                push(&mut composition, Event::Gaussian { noise_multiplier, sensitivity }, count)?;
            } else {
                let Some((sampling_rate, steps)) = self.sampling.rate_and_steps()? else {
                    return Err(Failure::arguments(
                        "a noise multiplier needs --sampling-rate and --steps, or --examples, \
                         --batch and --epochs, or --releases",
                    ));
                };
                let step = Event::of_step(noise_multiplier, sampling_rate, per_user);
                push(&mut composition, step, steps)?;
            }
        } else if self.sampling.rate_and_steps()?.is_some() {
            return Err(Failure::arguments(
                "subsampling needs --noise-multiplier; pass the noise of each phase with --phase",
            ));
        }
        if composition.parts().is_empty() {
            return Err(Failure::arguments(
                "nothing is released; give --noise-multiplier, --phase or --response (--help shows \
                 examples)",
            ));
        }
        Ok(composition)
    }
}

/// The first `count` releases of a composition.
pub fn first(composition: &Composition, count: u64) -> Composition {
    let (mut some, mut left) = (Composition::new(composition.adjacency), count);
    for part in composition.parts() {
        let taken = part.count.min(left);
        some.push(part.event, taken);
        left -= taken;
    }
    some
}

fn push(composition: &mut Composition, event: Event, count: u64) -> Outcome {
    event.validate()?;
    if count == 0 {
        return Err(Failure::arguments("the count must be at least 1"));
    }
    composition.push(event, count);
    Ok(())
}
