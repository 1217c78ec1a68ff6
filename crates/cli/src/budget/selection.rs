//! `budget selection`.

use super::releases::{Sampling, not_for_users};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use undertone_accounting::selection::NumberOfRuns;
use undertone_accounting::{Accountant, Adjacency, Composition, Event, epsilon};

#[derive(Args)]
#[command(after_help = "Examples:
  undertone budget selection --noise-multiplier 1.5 --examples 67349 --batch 1024 --epochs 10 \
--delta 1e-5 --eta 0 --gamma 0.05
  undertone budget selection --noise-multiplier 1.5 --sampling-rate 0.0152 --steps 650 --delta \
1e-5 --poisson 10")]
pub struct Selection {
    /// Noise multiplier of each run
    #[arg(long, value_name = "SIGMA")]
    noise_multiplier: f64,
    #[command(flatten)]
    sampling: Sampling,
    /// δ of the guarantee
    #[arg(long)]
    delta: f64,
    /// Shape η of the truncated negative binomial distribution of the number of runs: 1 is
    /// geometric, 0 is logarithmic
    #[arg(long, value_name = "ETA", default_value = "1")]
    eta: f64,
    /// Parameter γ of that distribution; smaller values mean more runs
    #[arg(long, value_name = "GAMMA", default_value = "0.1")]
    gamma: f64,
    /// Use a Poisson distribution with this mean instead
    #[arg(long, value_name = "MEAN", conflicts_with_all = ["eta", "gamma"])]
    poisson: Option<f64>,
}

impl Selection {
    pub fn run(self, output: Output) -> Outcome {
        if self.sampling.examples_per_user.is_some() {
            return Err(not_for_users());
        }
        let Some((sampling_rate, steps)) = self.sampling.rate_and_steps()? else {
            return Err(Failure::arguments(
                "say how the data are sampled: --sampling-rate and --steps, or --examples, --batch \
                 and --epochs",
            ));
        };
        let (eta, gamma) = (self.eta, self.gamma);
        let runs = match self.poisson {
            Some(mean) => NumberOfRuns::Poisson { mean },
            None => NumberOfRuns::NegativeBinomial { eta, gamma },
        };
        let noise_multiplier = self.noise_multiplier;
        let event = Event::Selection { runs, noise_multiplier, sampling_rate, steps };
        let whole = Composition::new(Adjacency::AddRemove).with(event, 1);
        let answer = epsilon(&whole, self.delta, Accountant::Rdp)?;
        let of_run = Composition::dp_sgd(noise_multiplier, sampling_rate, steps);
        let of_run = epsilon(&of_run, self.delta, Accountant::Auto)?;
        if output.json {
            output::json(&json!({
                "epsilon": answer.epsilon,
                "epsilon_of_one_run": of_run.epsilon,
                "delta": self.delta,
                "runs": runs,
                "mean_runs": runs.mean(),
                "accountant": answer.accountant,
                "certified": answer.certified,
                "adjacency": answer.adjacency,
            }));
            return Ok(());
        }
        let mut rows = vec![
            ("mean number of runs", format!("{:.2}", runs.mean())),
            ("ε of one run", output::interval(&of_run.epsilon)),
        ];
        rows.extend(output::explain(&answer));
        output::rows(&rows);
        output::line("");
        output::line(output::sentence(&answer));
        Ok(())
    }
}
