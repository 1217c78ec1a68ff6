//! `budget tokens`: MVG's budgets over the positions of a sequence.

use crate::arguments::{PlotArgument, up_to};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use undertone::explain::contribution::{positional, token_contributions};
use undertone::method::local::mvg::Budgets;
use undertone::model::folder::{LoadOptions, load, locate};
use undertone::model::layer::sanitizer::{NoiseLayer, Rows};
use undertone::model::sanitized::rows_alone;
use undertone_accounting::schedule::Passes;
use undertone_report::plot;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone budget tokens --shift -0.5 0 0.5 --spread 0.3 --plot \
     budgets.svg\n  undertone budget tokens --tokens 64 --examples 67349 --batch 32 --epochs 3 \
     --model bert-base-uncased"
)]
pub struct Tokens {
    /// Sequence length in tokens
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = up_to(65_536))]
    tokens: usize,
    /// Position k of the smallest budget, from −1 (start) to 1 (end); one curve per value
    #[arg(long, value_name = "K", num_args = 1.., default_values_t = [-0.5, 0.0, 0.5])]
    shift: Vec<f64>,
    /// Width v of the bell, in the same unit; one curve per value
    #[arg(long, value_name = "V", num_args = 1.., default_values_t = [0.3])]
    spread: Vec<f64>,
    /// Smallest ε of a token
    #[arg(long, value_name = "EPSILON", default_value_t = 1.0)]
    epsilon_min: f64,
    /// Largest ε of a token
    #[arg(long, value_name = "EPSILON", default_value_t = 10.0)]
    epsilon_max: f64,
    /// δ of the noise multipliers
    #[arg(long, default_value_t = 1e-5)]
    delta: f64,
    /// Number of examples; with `--batch` and `--epochs`, computes noise multipliers
    #[arg(long, value_name = "N", requires_all = ["batch", "epochs"])]
    examples: Option<u64>,
    /// Expected batch size of Poisson sampling
    #[arg(long, value_name = "N", requires = "examples")]
    batch: Option<u64>,
    /// Number of epochs
    #[arg(long, value_name = "N", requires = "examples")]
    epochs: Option<u32>,
    /// Model folder, or model name on the Hugging Face Hub; computes the mean contribution of each
    /// token to the model's output, from the attention between positions without text
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    chart: PlotArgument,
    /// Quantity to plot over the positions
    #[arg(long, value_enum, default_value = "epsilon", requires = "plot")]
    plot_of: Drawn,
}

/// Quantity to plot over the positions.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Drawn {
    /// ε of each token
    Epsilon,
    /// Noise multiplier σ of each token (requires `--examples`, `--batch` and `--epochs`)
    Noise,
    /// Contribution of each token (requires `--model`)
    Contribution,
}

/// Title, axis and lines of a chart.
type Chart = (&'static str, &'static str, Vec<(String, Points)>);

/// Positions with their values.
type Points = Vec<(f64, f64)>;

/// The budgets for one shift and one spread.
struct Curve {
    budgets: Budgets,
    epsilon: Vec<f64>,
    noise_multipliers: Option<Vec<f64>>,
}

impl Curve {
    fn name(&self) -> String {
        format!("k = {}, v = {}", self.budgets.shift, self.budgets.spread)
    }
}

impl Tokens {
    pub fn run(self, output: Output) -> Outcome {
        let above_zero = |x: f64| x.is_finite() && x > 0.0;
        if !above_zero(self.epsilon_min)
            || !self.epsilon_max.is_finite()
            || self.epsilon_max < self.epsilon_min
        {
            return Err(Failure::arguments(
                "--epsilon-min must be above 0 and --epsilon-max not below it",
            ));
        }
        if !self.shift.iter().all(|k| k.is_finite()) || !self.spread.iter().all(|&v| above_zero(v))
        {
            return Err(Failure::arguments("--shift must be finite and --spread above 0"));
        }
        let curves = self.curves()?;
        let contributions =
            self.model.as_deref().map(|name| self.contributions(name)).transpose()?;
        if let Some(path) = self.chart.file()? {
            let (title, axis, lines) = self.chart(&curves, contributions.as_deref())?;
            plot::lines(path, title, ("position", axis), &lines)?;
        }
        if output.json {
            let curve = |curve: &Curve| {
                let mut object = json!({
                    "shift": curve.budgets.shift,
                    "spread": curve.budgets.spread,
                    "epsilon": curve.epsilon,
                });
                if let Some(noise) = &curve.noise_multipliers {
                    object["noise_multipliers"] = json!(noise);
                }
                object
            };
            let mut object = json!({ "curves": curves.iter().map(curve).collect::<Vec<Value>>() });
            if let Some(contributions) = &contributions {
                object["contributions"] = json!(contributions);
            }
            output::json(&object);
            return Ok(());
        }
        let mut head = vec!["position".to_owned()];
        for curve in &curves {
            head.push(format!("ε, {}", curve.name()));
            head.extend(curve.noise_multipliers.as_ref().map(|_| "σ".to_owned()));
        }
        head.extend(contributions.as_ref().map(|_| "contribution".to_owned()));
        let row = |i: usize| {
            let mut row = vec![i.to_string()];
            for curve in &curves {
                row.push(format!("{:.3}", curve.epsilon[i]));
                row.extend(curve.noise_multipliers.as_ref().map(|noise| output::noise(noise[i])));
            }
            row.extend(contributions.as_ref().map(|shares| format!("{:.4}", shares[i])));
            row
        };
        let rows: Vec<Vec<String>> = (0..self.tokens).map(row).collect();
        output::table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows);
        output::line(
            "\nA token's ε covers one token and one column only; it says nothing about a whole \
             example.",
        );
        Ok(())
    }

    /// Title, axis and lines of the chart.
    fn chart(&self, curves: &[Curve], contributions: Option<&[f64]>) -> Outcome<Chart> {
        let points = |values: &[f64]| {
            values.iter().enumerate().map(|(i, &value)| (i as f64, value)).collect::<Vec<_>>()
        };
        let lines = |of: &dyn Fn(&Curve) -> Option<Points>| -> Option<Vec<_>> {
            curves.iter().map(|curve| Some((curve.name(), of(curve)?))).collect()
        };
        let (title, axis, lines) = match self.plot_of {
            Drawn::Epsilon => {
                ("Budgets of tokens", "ε", lines(&|curve| Some(points(&curve.epsilon))))
            }
            Drawn::Noise => (
                "Noise of tokens",
                "σ",
                lines(&|curve| curve.noise_multipliers.as_deref().map(points)),
            ),
            Drawn::Contribution => (
                "Contributions of tokens",
                "share",
                contributions.map(|shares| vec![("contribution".to_owned(), points(shares))]),
            ),
        };
        let needed = || {
            Failure::arguments(
                "--plot-of noise needs --examples, --batch and --epochs; --plot-of contribution \
                 needs --model",
            )
        };
        Ok((title, axis, lines.ok_or_else(needed)?))
    }

    fn curves(&self) -> Outcome<Vec<Curve>> {
        let passes = match (self.examples, self.batch, self.epochs) {
            (Some(examples), Some(batch), Some(epochs)) => {
                Some((Passes::over(examples, batch, epochs)?, epochs))
            }
            _ => None,
        };
        let tokens = self.tokens;
        let pairs = self.spread.iter().flat_map(|&v| self.shift.iter().map(move |&k| (k, v)));
        let curve = |(shift, spread): (f64, f64)| -> Outcome<Curve> {
            let (least, most) = (self.epsilon_min, self.epsilon_max);
            let budgets = Budgets { shift, spread, least, most };
            let noise_multipliers = match &passes {
                None => None,
                Some((passes, epochs)) => {
                    let steps = passes.steps_per_epoch * u64::from(*epochs);
                    let rate = passes.sampling_rate;
                    Some(budgets.noise_multipliers(tokens, self.delta, rate, steps)?)
                }
            };
            Ok(Curve { budgets, epsilon: budgets.of(tokens), noise_multipliers })
        };
        pairs.map(curve).collect()
    }

    /// The mean contribution of each token to the columns of the model's output.
    fn contributions(&self, name: &str) -> Outcome<Vec<f64>> {
        let mut model = load(&locate(name)?, &LoadOptions::default())?;
        if self.tokens > model.network.max_positions {
            return Err(Failure::arguments(format!(
                "the model supports at most {} tokens; lower --tokens",
                model.network.max_positions
            )));
        }
        let last_token = model.network.blocks.iter().any(|block| block.attention.causal);
        let rows = if last_token { Rows::Last } else { Rows::First };
        model.network.sanitizer = Some(rows_alone(NoiseLayer::Output, rows));
        let map = positional(&model, self.tokens, last_token)?;
        let contributions = token_contributions(&model, &map)?;
        Ok(contributions.row_iter().map(|row| row.iter().sum::<f64>() / row.len() as f64).collect())
    }
}
