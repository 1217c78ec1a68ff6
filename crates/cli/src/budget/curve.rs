//! `budget curve` and `budget tradeoff`.

use super::releases::{Releases, first};
use crate::arguments::{AccountantArgument, PlotArgument};
use crate::failure::{Failure, Outcome};
use crate::output::{self, Output};
use clap::Args;
use serde_json::json;
use undertone_accounting::{Accountant, Answer, Composition};
use undertone_report::plot;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  undertone budget curve --noise-multiplier 1.1 --sampling-rate \
     0.00426667 --steps 14063 --plot curve.svg\n  undertone budget curve --noise-multiplier 1.1 \
     --examples 60000 --batch 256 --epochs 10 --delta 1e-5"
)]
pub struct Curve {
    #[command(flatten)]
    releases: Releases,
    /// Largest ε of the curve [default: where δ is about 1e-12]
    #[arg(long)]
    max_epsilon: Option<f64>,
    /// Compute ε at this δ after each part of the run instead, half-way among them
    #[arg(long, conflicts_with_all = ["max_epsilon", "plot"])]
    delta: Option<f64>,
    /// Number of points of the curve, from 2 to 1000 [default: 40, or 10 with `--delta`]
    #[arg(long)]
    points: Option<usize>,
    #[command(flatten)]
    by: AccountantArgument,
    #[command(flatten)]
    chart: PlotArgument,
}

impl Curve {
    pub fn run(self, output: Output) -> Outcome {
        let composition = self.releases.composition()?;
        if let Some(delta) = self.delta {
            return self.spending(&composition, delta, output);
        }
        let count = self.points.unwrap_or(40);
        check_points(count)?;
        let AccountantArgument { accountant } = self.by;
        let far = match self.max_epsilon {
            Some(epsilon) => epsilon,
            None => undertone_accounting::epsilon(&composition, 1e-12, accountant)?
                .epsilon
                .upper
                .max(1e-3),
        };
        let epsilons: Vec<f64> = (1..=count).map(|i| far * i as f64 / count as f64).collect();
        // Rejects an ε outside the certified range before computing anything.
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

    /// ε after each part of the run, for everything released so far.
    fn spending(&self, all: &Composition, delta: f64, output: Output) -> Outcome {
        let points = self.points.unwrap_or(10);
        check_points(points)?;
        all.validate()?;
        let releases = all.releases();
        let mut counts: Vec<u64> = (1..=points as u64)
            .map(|i| (releases as f64 * i as f64 / points as f64).ceil() as u64)
            .chain([releases.div_ceil(2)])
            .map(|count| count.clamp(1, releases))
            .collect();
        counts.sort_unstable();
        counts.dedup();
        let mut spent = Vec::new();
        for count in counts {
            let answer =
                undertone_accounting::epsilon(&first(all, count), delta, self.by.accountant)?;
            spent.push((count, count as f64 / releases as f64, answer));
        }
        if output.json {
            let points: Vec<_> = spent
                .iter()
                .map(|(count, share, answer)| {
                    json!({
                        "releases": count,
                        "share": share,
                        "epsilon": answer.epsilon,
                        "certified": answer.certified,
                    })
                })
                .collect();
            output::json(&json!({
                "spending": points, "delta": delta, "adjacency": all.adjacency,
            }));
            return Ok(());
        }
        let rows: Vec<Vec<String>> = spent
            .iter()
            .map(|(count, share, answer)| {
                let half = if *count == releases.div_ceil(2) { "half-way, " } else { "" };
                let [least, most] = bounds(answer);
                vec![format!("{half}{:.1} %", 100.0 * share), count.to_string(), least, most]
            })
            .collect();
        let at_least = format!("ε at δ = {delta:e}, at least");
        output::table(&["of the run", "releases", &at_least, "at most"], &rows);
        output::line("");
        output::line(
            "A run that may stop early, depending on what it has released, costs the last row.",
        );
        Ok(())
    }
}

/// Both bounds on ε, if the accountant certifies them.
fn bounds(answer: &Answer) -> [String; 2] {
    match answer.accountant {
        Accountant::Rdp => ["–".to_owned(), output::up(answer.epsilon.upper)],
        Accountant::Gdp => [format!("about {:.4}", answer.epsilon.estimate), "–".to_owned()],
        _ => [output::down(answer.epsilon.lower), output::up(answer.epsilon.upper)],
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
    /// Number of points of the curve, from 2 to 1000
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
