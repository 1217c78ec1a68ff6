//! The training losses of a sweep's cells as a chart.

use crate::cells::Cells;
use crate::error::Result;
use crate::file::Sweep;
use std::path::Path;
use undertone_report::plot;
use undertone_run::{RunPaths, read_metrics};

/// Number of points of a curve: the losses of single batches are too noisy.
const POINTS: usize = 60;

/// Plots the mean loss of each cell over its seeds, averaged over windows of steps. Failed runs are
/// left out.
pub fn draw(path: &Path, sweep: &Sweep, cells: &Cells, runs: &Path) -> Result<()> {
    let mut curves = Vec::new();
    for (row, of_row) in sweep.rows.iter().zip(&cells.of) {
        for (column, of_cell) in sweep.columns.iter().zip(of_row) {
            let Some(of_cell) = of_cell else { continue };
            let losses = of_cell.iter().filter_map(|&run| {
                let paths = RunPaths::new(&runs.join(&cells.runs[run].folder));
                let records = read_metrics(&paths.metrics()).ok()?;
                Some(records.iter().map(|record| record.loss).collect())
            });
            let losses: Vec<Vec<Option<f64>>> = losses.collect();
            let name = match (sweep.rows.len(), sweep.columns.len()) {
                (_, 1) => row.label.clone(),
                (1, _) => column.label.clone(),
                _ => format!("{}, {}", row.label, column.label),
            };
            curves.push((name, in_windows(&losses)));
        }
    }
    Ok(plot::lines(path, "Training loss", ("step", "loss"), &curves)?)
}

/// The mean loss of each window of steps over all runs, at the window's middle.
fn in_windows(runs: &[Vec<Option<f64>>]) -> Vec<(f64, f64)> {
    let steps = runs.iter().map(Vec::len).max().unwrap_or(0);
    let width = steps.div_ceil(POINTS).max(1);
    let window = |first: usize| {
        let all = runs.iter().flat_map(|run| run.iter().skip(first).take(width)).flatten();
        let finite: Vec<f64> = all.copied().filter(|loss| loss.is_finite()).collect();
        let mean = finite.iter().sum::<f64>() / finite.len() as f64;
        let end = (first + width).min(steps);
        (!finite.is_empty()).then_some((0.5 * (first + end) as f64, mean))
    };
    (0..steps).step_by(width).filter_map(window).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_means_over_steps_and_seeds() {
        let run = |loss: f64| vec![Some(loss); 120];
        let points = in_windows(&[run(1.0), run(3.0)]);
        assert_eq!(points.len(), POINTS);
        assert!(points.iter().all(|&(_, loss)| loss == 2.0));
        assert_eq!((points[0].0, points[59].0), (1.0, 119.0));
        // An empty batch has no loss.
        let some = in_windows(&[vec![Some(4.0), None, Some(2.0)]]);
        assert_eq!(some, [(0.5, 4.0), (2.5, 2.0)]);
        assert_eq!(in_windows(&[]), []);
    }
}
