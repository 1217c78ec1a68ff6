//! `budget curve` and `budget tradeoff`.

use super::releases::Releases;
use crate::arguments::{AccountantArgument, PlotArgument};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use undertone_report::plot;

#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone budget curve --noise-multiplier 1.1 --sampling-rate \
     0.00426667 --steps 14063 --plot curve.svg"
)]
pub struct Curve {
    #[command(flatten)]
    releases: Releases,
    /// Up to this ε [default: where δ is about 1e-12]
    #[arg(long)]
    max_epsilon: Option<f64>,
    /// Points of the curve, from 2 to 1000
    #[arg(long, default_value = "40")]
    points: usize,
    #[command(flatten)]
    by: AccountantArgument,
    #[command(flatten)]
    chart: PlotArgument,
}

impl Curve {
    pub fn run(self, output: Output) -> Outcome {
        check_points(self.points)?;
        let composition = self.releases.composition()?;
        let AccountantArgument { accountant } = self.by;
        let far = match self.max_epsilon {
            Some(epsilon) => epsilon,
            None => undertone_accounting::epsilon(&composition, 1e-12, accountant)?
                .epsilon
                .upper
                .max(1e-3),
        };
        let epsilons: Vec<f64> =
            (1..=self.points).map(|i| far * i as f64 / self.points as f64).collect();
        // Refuses an ε outside of the certified range before anything is computed.
        undertone_accounting::delta(&composition, far, accountant)?;
        let points = undertone_accounting::curve(&composition, &epsilons, accountant)?;
        if let Some(path) = self.chart.file()? {
            plot::privacy_curve(path, &points)?;
        }
        if output.json {
            output::json(&json!({ "curve": points, "adjacency": composition.adjacency }));
            return Ok(());
        }
        let rows: Vec<Vec<String>> = points
            .iter()
            .map(|p| {
                vec![
                    format!("{:.4}", p.epsilon),
                    output::delta_down(p.delta.lower),
                    output::delta_up(p.delta.upper),
                ]
            })
            .collect();
        output::table(&["ε", "δ, at least", "δ, at most"], &rows);
        Ok(())
    }
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  undertone budget tradeoff --noise-multiplier 1.1 --sampling-rate \
     0.00426667 --steps 14063 --plot roc.svg"
)]
pub struct TradeOff {
    #[command(flatten)]
    releases: Releases,
    /// Points of the curve, from 2 to 1000
    #[arg(long, default_value = "40")]
    points: usize,
    #[command(flatten)]
    by: AccountantArgument,
    #[command(flatten)]
    chart: PlotArgument,
}

impl TradeOff {
    pub fn run(self, output: Output) -> Outcome {
        check_points(self.points)?;
        let composition = self.releases.composition()?;
        let mut rates = vec![0.001, 0.01];
        rates.extend((0..=self.points).map(|i| i as f64 / self.points as f64));
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        let points = undertone_accounting::trade_off(&composition, &rates, self.by.accountant)?;
        if let Some(path) = self.chart.file()? {
            plot::trade_off(path, &points)?;
        }
        if output.json {
            output::json(&json!({ "trade_off": points, "adjacency": composition.adjacency }));
            return Ok(());
        }
        let rows: Vec<Vec<String>> = points
            .iter()
            .map(|p| {
                let t = p.true_positive_rate;
                vec![
                    format!("{:.4}", p.false_positive_rate),
                    output::down(t.lower),
                    output::up(t.upper),
                ]
            })
            .collect();
        output::table(&["false positives", "true positives, at least", "at most"], &rows);
        output::line("");
        output::line(
            "No attacker with the given false-positive rate finds a larger share of the units that \
             are in the data.",
        );
        Ok(())
    }
}

fn check_points(points: usize) -> Outcome {
    if (2..=1000).contains(&points) {
        return Ok(());
    }
    Err(Failure::arguments(format!(
        "the number of points is {points}, but must be between 2 and 1000"
    )))
}
