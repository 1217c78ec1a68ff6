//! `budget schedule`.

use crate::arguments::{PlotArgument, TargetArguments};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::{Args, ValueEnum};
use serde_json::json;
use undertone_accounting::schedule::{self, Ewpba, Passes, Shape};
use undertone_report::plot;
use undertone_run::NoiseSchedule;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone budget schedule --method ewpba --epsilon 8 --delta 1e-5 \
     --examples 67349 --batch 32 --epochs 3 --step-distance 2\n  undertone budget schedule \
     --method cosine --ratio 3 --epsilon 8 --delta 1e-5 --examples 67349 --batch 1024 --epochs 10 \
     --plot noise.svg"
)]
pub struct Schedule {
    /// Schedule of the noise multiplier over the epochs
    #[arg(long, value_enum, default_value = "ewpba")]
    method: NoiseSchedule,
    #[command(flatten)]
    target: TargetArguments,
    /// Number of examples
    #[arg(long, value_name = "N")]
    examples: u64,
    /// Expected batch size of Poisson sampling
    #[arg(long, value_name = "N")]
    batch: u64,
    /// Number of epochs, each of ⌊examples / batch⌋ steps
    #[arg(long, value_name = "N")]
    epochs: u32,
    /// ewpba: ratio of the noise decay in the first stage to that in the second [default: 2]
    #[arg(long, value_name = "S")]
    step_distance: Option<f64>,
    /// ewpba: part of ε reserved for the spread; must be below ε [default: 1]
    #[arg(long)]
    reserve: Option<f64>,
    /// linear, exponential, cosine, step: ratio of the noise in the first epoch to that in the last
    /// [default: 2]
    #[arg(long)]
    ratio: Option<f64>,
    #[command(flatten)]
    chart: PlotArgument,
}

impl Schedule {
    pub fn run(self, output: Output) -> Outcome {
        if self.epochs > 1_000 {
            return Err(Failure::arguments("a schedule has at most 1000 epochs"));
        }
        self.refuse_what_has_no_effect()?;
        let passes = Passes::over(self.examples, self.batch, self.epochs)?;
        let shape = match self.method {
            NoiseSchedule::Ewpba => None,
            NoiseSchedule::Uniform => Some(Shape::Uniform),
            NoiseSchedule::Linear => Some(Shape::Linear),
            NoiseSchedule::Exponential => Some(Shape::Exponential),
            NoiseSchedule::Cosine => Some(Shape::Cosine),
            NoiseSchedule::Step => Some(Shape::Step),
        };
        let (schedule, beginning) = match shape {
            Some(shape) => {
                let schedule = schedule::shaped(
                    shape,
                    &passes,
                    self.ratio.unwrap_or(2.0),
                    self.target.epsilon,
                    self.target.delta,
                )?;
                (schedule, None)
            }
            None => {
                let asked = Ewpba {
                    epsilon: self.target.epsilon,
                    delta: self.target.delta,
                    step_distance: self.step_distance.unwrap_or(2.0),
                    reserve: self.reserve.unwrap_or(1.0),
                };
                let (schedule, beginning) = schedule::ewpba(&asked, &passes)?;
                (schedule, Some(beginning))
            }
        };
        let name =
            self.method.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned());
        if let Some(path) = self.chart.file()? {
            plot::schedule(path, &name, &schedule.noise_multipliers, beginning)?;
        }
        if output.json {
            let mut object = json!({
                "method": name,
                "noise_multipliers": schedule.noise_multipliers,
                "epsilon": schedule.answer.epsilon,
                "delta": self.target.delta,
                "accountant": schedule.answer.accountant,
                "adjacency": schedule.answer.adjacency,
                "sampling_rate": passes.sampling_rate,
                "steps_per_epoch": passes.steps_per_epoch,
            });
            if let Some(beginning) = beginning {
                object["beginning"] = json!(beginning);
            }
            output::json(&object);
            return Ok(());
        }
        let rows: Vec<Vec<String>> = schedule
            .noise_multipliers
            .iter()
            .enumerate()
            .map(|(e, s)| {
                vec![(e + 1).to_string(), passes.steps_per_epoch.to_string(), output::noise(*s)]
            })
            .collect();
        output::table(&["epoch", "steps", "noise multiplier"], &rows);
        output::line("");
        let mut explained = output::explain(&schedule.answer);
        if let Some(beginning) = beginning {
            explained.insert(0, ("beginning", output::noise(beginning)));
        }
        output::rows(&explained);
        output::line("");
        output::line(output::sentence(&schedule.answer));
        Ok(())
    }
    fn refuse_what_has_no_effect(&self) -> Outcome {
        let ewpba = self.method == NoiseSchedule::Ewpba;
        let has_ratio = !ewpba && self.method != NoiseSchedule::Uniform;
        for (name, given, has_effect) in [
            ("--step-distance", self.step_distance.is_some(), ewpba),
            ("--reserve", self.reserve.is_some(), ewpba),
            ("--ratio", self.ratio.is_some(), has_ratio),
        ] {
            if given && !has_effect {
                return Err(Failure::arguments(format!(
                    "{name} has no effect on this schedule; leave it out or choose another --method"
                )));
            }
        }
        Ok(())
    }
}
