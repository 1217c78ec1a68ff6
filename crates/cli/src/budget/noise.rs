//! `budget noise`.

use super::releases::{Sampling, not_for_users};
use crate::arguments::{AccountantArgument, TargetArguments};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use undertone_accounting::calibrate::{Calibrated, noise_for_users, noise_multiplier};
use undertone_accounting::gaussian;
use undertone_accounting::{Accountant, Adjacency, Composition, Event};

#[derive(Args)]
#[command(after_help = "Examples:
  undertone budget noise --epsilon 8 --delta 1e-5 --sampling-rate 0.0152 --steps 650
  undertone budget noise --epsilon 8 --delta 1e-5 --examples 67349 --batch 1024 --epochs 10
  undertone budget noise --epsilon 8 --delta 1e-5 --releases 1 --sensitivity 2")]
pub struct Noise {
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    sampling: Sampling,
    /// Number of Gaussian releases without sampling (local DP, replace-one adjacency)
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = ["sampling_rate", "steps", "examples", "accountant"]
    )]
    releases: Option<u64>,
    /// Sensitivity of a release without sampling to one unit, in clipping norms
    #[arg(long, value_name = "DELTA", requires = "releases", default_value = "2")]
    sensitivity: f64,
    #[command(flatten)]
    by: AccountantArgument,
}

impl Noise {
    pub fn run(self, output: Output) -> Outcome {
        let calibrated = self.calibrate()?;
        if output.json {
            output::json(&json!({
                "noise_multiplier": calibrated.noise,
                "epsilon": calibrated.answer.epsilon,
                "delta": self.target.delta,
                "accountant": calibrated.answer.accountant,
                "certified": calibrated.answer.certified,
                "adjacency": calibrated.answer.adjacency,
            }));
            return Ok(());
        }
        let mut rows = vec![("noise multiplier", output::noise(calibrated.noise))];
        rows.extend(output::explain(&calibrated.answer));
        output::rows(&rows);
        output::line("");
        output::line(output::sentence(&calibrated.answer));
        Ok(())
    }

    fn calibrate(&self) -> Outcome<Calibrated> {
        if let Some(count) = self.releases {
            if self.sampling.examples_per_user.is_some() {
                return Err(not_for_users());
            }
            return self.plain(count);
        }
        let Some((rate, steps)) = self.sampling.rate_and_steps()? else {
            return Err(Failure::arguments(
                "say how the data are sampled: --sampling-rate and --steps, or --examples, --batch \
                 and --epochs, or --releases",
            ));
        };
        let TargetArguments { epsilon, delta } = self.target;
        let accountant = self.by.accountant;
        Ok(match self.sampling.examples_per_user {
            None => noise_multiplier(epsilon, delta, rate, steps, accountant)?,
            Some(most) => noise_for_users(epsilon, delta, rate, steps, most, accountant)?,
        })
    }

    fn plain(&self, count: u64) -> Outcome<Calibrated> {
        if count == 0 {
            return Err(Failure::arguments("the count must be at least 1"));
        }
        let composed = |noise_multiplier: f64| {
            let event = Event::Gaussian { noise_multiplier, sensitivity: self.sensitivity };
            Composition::new(Adjacency::ReplaceOne).with(event, count)
        };
        composed(1.0).validate()?;
        // Validates ε and δ before they are used.
        undertone_accounting::delta(&composed(1.0), self.target.epsilon, Accountant::Gaussian)?;
        undertone_accounting::epsilon(&composed(1.0), self.target.delta, Accountant::Gaussian)?;
        let mu = gaussian::largest_mu(self.target.epsilon, self.target.delta)?;
        let noise = (count as f64).sqrt() * self.sensitivity / mu * (1.0 + 1e-11);
        let answer = undertone_accounting::epsilon(
            &composed(noise),
            self.target.delta,
            Accountant::Gaussian,
        )?;
        Ok(Calibrated { noise, answer })
    }
}
