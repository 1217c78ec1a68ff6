//! Charts as separate SVG files, with the same drawings as in a report.

use crate::chart::heat_map as heat_map_chart;
use crate::document::Table;
use crate::error::Result;
use crate::words;
use std::path::Path;
use undertone_accounting::{CurvePoint, TradeOffPoint};

pub use crate::chart::{Axis, MARK, Mark, Plot, Series};
pub use crate::words::short;

/// A curve: its name and its points.
pub type Curve = (String, Vec<(f64, f64)>);

fn write(path: &Path, title: &str, plot: &Plot) -> Result<()> {
    plot.chart(title, "", Table::new(title, &[], Vec::new()))?.write(path)
}

/// The noise multiplier of each epoch.
pub fn schedule(path: &Path, method: &str, noise: &[f64], beginning: Option<f64>) -> Result<()> {
    let epochs = noise.len() as f64;
    let top = noise.iter().copied().fold(beginning.unwrap_or(0.0), f64::max) * 1.1;
    let steps = noise.iter().enumerate();
    let corners = steps.flat_map(|(i, &s)| [(i as f64, s), (i as f64 + 1.0, s)]).collect();
    let mut series = vec![Series::new("schedule", 0, Mark::Line, corners)];
    if let Some(beginning) = beginning {
        let line = vec![(0.0, beginning), (epochs, beginning)];
        series.push(Series::new("beginning (uniform at ε − reserve)", 1, Mark::Dashed, line));
    }
    let plot = Plot {
        x: Axis::linear("epochs passed", 0.0, epochs, short),
        y: Axis::linear("noise multiplier", 0.0, top, short),
        series,
    };
    write(path, &format!("Noise schedule: {method}"), &plot)
}

/// One number per parameter, by layer and kind.
pub fn heat_map(path: &Path, title: &str, numbers: &[(String, f64)]) -> Result<()> {
    heat_map_chart(title, "", numbers)?.write(path)
}

/// δ as a function of ε, with a logarithmic axis for δ.
pub fn privacy_curve(path: &Path, points: &[CurvePoint]) -> Result<()> {
    let right = points.iter().map(|p| p.epsilon).fold(0.0, f64::max);
    let positive = points.iter().map(|p| p.delta.upper).filter(|d| *d > 0.0);
    let least = positive.fold(1.0, f64::min).max(1e-18);
    let upper = points.iter().map(|p| (p.epsilon, p.delta.upper.max(least))).collect();
    let lower = points.iter().map(|p| (p.epsilon, p.delta.lower.max(least))).collect();
    let plot = Plot {
        x: Axis::linear("ε", 0.0, right, short),
        y: Axis::logarithmic("δ", least, 1.0, words::small),
        series: vec![
            Series::new("certified upper bound", 0, Mark::Line, upper),
            Series::new("certified lower bound", 1, Mark::Thin, lower),
        ],
    };
    write(path, "Privacy curve", &plot)
}

/// The best attacker's true-positive rate as a function of its false-positive rate.
pub fn trade_off(path: &Path, points: &[TradeOffPoint]) -> Result<()> {
    let upper = points.iter().map(|p| (p.false_positive_rate, p.true_positive_rate.upper));
    let curves = [("at most", &upper.collect::<Vec<_>>()[..])];
    roc(path, "What the best attacker can reach", &curves)
}

/// True-positive rate against false-positive rate, with the diagonal of random guessing.
pub fn roc(path: &Path, title: &str, curves: &[(&str, &[(f64, f64)])]) -> Result<()> {
    let named = curves.iter().enumerate();
    let lines =
        named.map(|(i, (name, points))| Series::new(*name, i as u8, Mark::Line, points.to_vec()));
    let guess = Series::new("guessing", 7, Mark::Dashed, vec![(0.0, 0.0), (1.0, 1.0)]);
    let plot = Plot {
        x: Axis::linear("false-positive rate", 0.0, 1.0, short),
        y: Axis::linear("true-positive rate", 0.0, 1.0, short),
        series: lines.chain([guess]).collect(),
    };
    write(path, title, &plot)
}

/// Named curves over a common axis; the other axis starts at 0.
pub fn lines(path: &Path, title: &str, (across, up): (&str, &str), curves: &[Curve]) -> Result<()> {
    let points = || curves.iter().flat_map(|(_, points)| points.iter().copied());
    let top = points().map(|(_, y)| y).filter(|y| y.is_finite()).fold(0.0, f64::max).max(1e-9);
    let right = points().map(|(x, _)| x).fold(0.0, f64::max).max(1.0);
    let series = curves.iter().enumerate().map(|(i, (name, points))| {
        let points = points.iter().copied().filter(|(_, y)| y.is_finite()).collect();
        Series::new(name.clone(), i as u8, Mark::Line, points)
    });
    let plot = Plot {
        x: Axis::linear(across, 0.0, right, short),
        y: Axis::linear(up, 0.0, 1.08 * top, short),
        series: series.collect(),
    };
    write(path, title, &plot)
}
