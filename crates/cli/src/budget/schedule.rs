//! `budget schedule`.

use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use crate::plot;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use undertone_accounting::schedule::{self, Ewpba, Passes, Shape};

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Method {
    /// Epoch-weighted privacy budget allocation (EW-FT, Algorithm 1)
    Ewpba,
    /// The same noise in every epoch
    Uniform,
    /// Falling in equal steps
    Linear,
    /// Falling by equal factors
    Exponential,
    /// Falling along half a cosine
    Cosine,
    /// Falling at once, half-way
    Step,
}

#[derive(Args)]
#[command(after_help = "Examples:
  undertone budget schedule --method ewpba --epsilon 8 --delta 1e-5 --examples 67349 --batch 32 --epochs 3 --step-distance 2
  undertone budget schedule --method cosine --ratio 3 --epsilon 8 --delta 1e-5 --examples 67349 --batch 1024 --epochs 10 --plot noise.svg")]
pub struct Schedule {
    /// How the noise falls
    #[arg(long, value_enum, default_value = "ewpba")]
    method: Method,
    /// Target ε: the certified upper bound will not exceed it
    #[arg(long)]
    epsilon: f64,
    /// Target δ
    #[arg(long)]
    delta: f64,
    /// Size of the data set
    #[arg(long, value_name = "N")]
    examples: u64,
    /// Expected batch size
    #[arg(long, value_name = "N")]
    batch: u64,
    /// Passes over the data, each of ⌊examples / batch⌋ steps
    #[arg(long, value_name = "N")]
    epochs: u32,
    /// ewpba: how many times faster the noise falls in the first stage than in the second
    #[arg(long, value_name = "S", default_value = "2")]
    step_distance: f64,
    /// ewpba: the part of ε that is kept back for the spread; must be below ε
    #[arg(long, default_value = "1")]
    reserve: f64,
    /// Other methods: noise of the first epoch over that of the last
    #[arg(long, default_value = "2")]
    ratio: f64,
    /// Draw the schedule
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl Schedule {
    pub fn run(self, output: Output) -> Outcome {
        if self.epochs > 1_000 {
            return Err(Failure::arguments("a schedule has at most 1000 epochs"));
        }
        let passes = Passes::over(self.examples, self.batch, self.epochs)?;
        let shape = match self.method {
            Method::Ewpba => None,
            Method::Uniform => Some(Shape::Uniform),
            Method::Linear => Some(Shape::Linear),
            Method::Exponential => Some(Shape::Exponential),
            Method::Cosine => Some(Shape::Cosine),
            Method::Step => Some(Shape::Step),
        };
        let (found, beginning) = match shape {
            Some(shape) => {
                let found = schedule::shaped(shape, &passes, self.ratio, self.epsilon, self.delta)?;
                (found, None)
            }
            None => {
                let asked = Ewpba {
                    epsilon: self.epsilon,
                    delta: self.delta,
                    step_distance: self.step_distance,
                    reserve: self.reserve,
                };
                let (found, beginning) = schedule::ewpba(&asked, &passes)?;
                (found, Some(beginning))
            }
        };
        let name =
            self.method.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned());
        if let Some(path) = &self.plot {
            plot::schedule(path, &name, &found.noise_multipliers, beginning)?;
        }
        if output.json {
            let mut object = json!({
                "method": name,
                "noise_multipliers": found.noise_multipliers,
                "epsilon": found.answer.epsilon,
                "delta": self.delta,
                "accountant": found.answer.accountant,
                "adjacency": found.answer.adjacency,
                "sampling_rate": passes.sampling_rate,
                "steps_per_epoch": passes.steps_per_epoch,
            });
            if let Some(beginning) = beginning {
                object["beginning"] = json!(beginning);
            }
            output::json(&object);
            return Ok(());
        }
        let rows: Vec<Vec<String>> = found
            .noise_multipliers
            .iter()
            .enumerate()
            .map(|(e, s)| {
                vec![(e + 1).to_string(), passes.steps_per_epoch.to_string(), output::noise(*s)]
            })
            .collect();
        output::table(&["epoch", "steps", "noise multiplier"], &rows);
        output::line("");
        let mut explained = output::explain(&found.answer);
        if let Some(beginning) = beginning {
            explained.insert(0, ("beginning", output::noise(beginning)));
        }
        output::rows(&explained);
        output::line("");
        output::line(output::sentence(&found.answer));
        Ok(())
    }
}
