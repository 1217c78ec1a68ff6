//! The table: a mean for each cell, and its comparison with the baseline.

use crate::cells::Cells;
use crate::file::Sweep;
use crate::metric::Metric;
use crate::runner::Outcome;
use crate::statistics::{mean, paired_p_value, standard_error};
use serde::Serialize;

/// Significance level.
pub const LEVEL: f64 = 0.05;

/// The result of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Name of the metric.
    pub metric: String,
    /// Whether larger is better.
    pub higher_is_better: bool,
    /// The row that the others are compared with.
    pub baseline: Option<String>,
    /// Labels of the columns, in their order.
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
    /// Notes below the table.
    pub notes: Vec<String>,
    /// Runs that failed, each with the reason.
    pub failures: Vec<(String, String)>,
}

/// A row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub label: String,
    /// Whether it is left out of comparisons.
    pub reference: bool,
    /// The row that it is compared with, instead of the table's baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Cells by column; `None` where the row skips a column.
    pub cells: Vec<Option<Cell>>,
}

/// A cell of the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// Values in the order of the seeds; `None` where a run failed.
    pub values: Vec<Option<f64>>,
    /// The mean over the seeds that finished.
    pub mean: Option<f64>,
    /// The standard error of the mean, for two or more values.
    pub standard_error: Option<f64>,
    /// Whether it is the best mean of its column.
    pub best: bool,
    /// p-value of the paired one-tailed test against the baseline.
    pub p_value: Option<f64>,
    /// The published figure, in the unit of the table.
    pub published: Option<f64>,
    /// Number of decimal places shown.
    #[serde(skip)]
    pub decimals: usize,
}

impl Cell {
    /// Number of finished runs, and of all runs.
    pub fn finished(&self) -> (usize, usize) {
        (self.values.iter().flatten().count(), self.values.len())
    }
}

impl Table {
    /// Makes the table from the outcomes of the runs.
    pub fn new(sweep: &Sweep, cells: &Cells, results: &[Outcome]) -> Self {
        let metric = sweep.file.metric;
        let figure = |run: &usize| results[*run].as_ref().ok().and_then(|run| metric.of(run));
        let rows = sweep.rows.iter().enumerate().map(|(r, row)| {
            let cell = |c: usize| {
                let values: Vec<Option<f64>> =
                    cells.of[r][c].as_ref()?.iter().map(figure).collect();
                let published = sweep.published(r, &sweep.columns[c].label);
                Some(summarized(values, published, metric.decimals()))
            };
            let mut shown: Vec<Option<Cell>> = (0..sweep.columns.len()).map(cell).collect();
            if let Some(label) = &sweep.file.average {
                shown.push(average(&shown, sweep.published(r, label)));
            }
            shown.extend(sweep.also_columns().map(|(also, c, label)| {
                let figure = |run: &usize| also.of(results[*run].as_ref().ok()?);
                let values: Vec<Option<f64>> =
                    cells.of[r][c].as_ref()?.iter().map(figure).collect();
                // Not every row has this metric: non-private runs have no noise to measure with.
                let any = values.iter().any(Option::is_some);
                any.then(|| summarized(values, sweep.published(r, &label), also.decimals()))
            }));
            let (label, baseline) = (row.label.clone(), row.baseline.clone());
            Row { label, reference: row.reference, baseline, cells: shown }
        });
        let labels = || sweep.columns.iter().map(|column| column.label.clone());
        let more = sweep.also_columns().map(|(_, _, label)| label);
        let mut table = Self {
            metric: metric.to_string(),
            higher_is_better: metric.higher_is_better(),
            baseline: sweep.file.baseline.clone(),
            columns: labels().chain(sweep.file.average.clone()).chain(more).collect(),
            rows: rows.collect(),
            notes: Vec::new(),
            failures: failures(cells, results, metric),
        };
        table.compare();
        table.notes = crate::notes::notes(sweep, cells, &table);
        table
    }

    /// Finds the best cell of each column, and tests the others against the baseline.
    fn compare(&mut self) {
        let sign = if self.higher_is_better { 1.0 } else { -1.0 };
        let named = |row: &Row| row.baseline.clone().or(self.baseline.clone());
        let place = |label: String| self.rows.iter().position(|row| row.label == label);
        let baselines: Vec<Option<usize>> =
            self.rows.iter().map(|row| place(named(row)?)).collect();
        for c in 0..self.columns.len() {
            let rivals = || {
                self.rows
                    .iter()
                    .filter(|row| !row.reference)
                    .filter_map(|row| row.cells[c].as_ref())
            };
            let best = rivals()
                .filter_map(|cell| cell.mean)
                .map(|mean| sign * mean)
                .fold(f64::NEG_INFINITY, f64::max);
            let compared = rivals().count() > 1;
            let values = |row: &usize| self.rows[*row].cells[c].clone().unwrap_or_default().values;
            let theirs: Vec<Option<Vec<Option<f64>>>> =
                baselines.iter().map(|baseline| baseline.as_ref().map(values)).collect();
            for (r, row) in self.rows.iter_mut().enumerate() {
                let Some(cell) = row.cells[c].as_mut().filter(|_| !row.reference) else { continue };
                cell.p_value = None;
                cell.best = compared && cell.mean.is_some_and(|mean| sign * mean == best);
                if let Some(theirs) = theirs[r].as_ref().filter(|_| baselines[r] != Some(r)) {
                    let pairs = cell.values.iter().zip(theirs);
                    let differences: Vec<f64> = pairs
                        .filter_map(|(ours, theirs)| Some(sign * ((*ours)? - (*theirs)?)))
                        .collect();
                    cell.p_value = paired_p_value(&differences);
                }
            }
        }
    }
}

/// The mean over the columns, seed by seed; none for a row that does not have them all. A published
/// average is shown only if it was published for these columns, and never computed from others.
fn average(cells: &[Option<Cell>], published: Option<f64>) -> Option<Cell> {
    let all: Vec<&Cell> = cells.iter().map(Option::as_ref).collect::<Option<_>>()?;
    let seeds = all.iter().map(|cell| cell.values.len()).min()?;
    let of_seed = |seed: usize| {
        let values: Option<Vec<f64>> = all.iter().map(|cell| cell.values[seed]).collect();
        mean(&values?)
    };
    let decimals = all.first()?.decimals;
    Some(summarized((0..seeds).map(of_seed).collect(), published, decimals))
}

fn summarized(values: Vec<Option<f64>>, published: Option<f64>, decimals: usize) -> Cell {
    let measured: Vec<f64> = values.iter().flatten().copied().collect();
    Cell {
        mean: mean(&measured),
        standard_error: standard_error(&measured),
        values,
        published,
        decimals,
        best: false,
        p_value: None,
    }
}

fn failures(cells: &Cells, results: &[Outcome], metric: Metric) -> Vec<(String, String)> {
    let why = |result: &Outcome| match result {
        Ok(run) if metric.of(run).is_none() => Some(format!("has no {metric}")),
        Ok(_) => None,
        Err(sentence) => Some(sentence.clone()),
    };
    let runs = cells.runs.iter().zip(results);
    runs.filter_map(|(run, result)| Some((run.name.clone(), why(result)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(higher_is_better: bool, rows: &[(&str, Vec<Option<f64>>)]) -> Table {
        let mut table = Table {
            metric: "x".into(),
            higher_is_better,
            baseline: Some("base".into()),
            columns: vec!["one".into()],
            rows: rows
                .iter()
                .map(|(label, values)| Row {
                    label: (*label).into(),
                    reference: *label == "non-private",
                    baseline: None,
                    cells: vec![Some(summarized(values.clone(), None, 2))],
                })
                .collect(),
            notes: Vec::new(),
            failures: Vec::new(),
        };
        table.compare();
        table
    }

    #[test]
    fn an_average_is_that_of_each_seed_over_the_columns() {
        let cell =
            |values: [Option<f64>; 2], published| Some(summarized(values.into(), published, 2));
        let (first, second) =
            (cell([Some(1.0), Some(2.0)], Some(10.0)), cell([Some(3.0), None], Some(20.0)));
        let averaged = average(&[first.clone(), second.clone()], None).unwrap();
        assert_eq!(averaged.values, [Some(2.0), None]);
        assert_eq!((averaged.mean, averaged.published), (Some(2.0), None));
        assert_eq!(average(&[first.clone(), second], Some(14.9)).unwrap().published, Some(14.9));
        assert_eq!(average(&[first, None], None), None);
    }

    /// Rows of another reading are tested against the baseline of that reading.
    #[test]
    fn a_row_can_have_a_baseline_of_its_own() {
        let mut table = table(
            true,
            &[
                ("base", vec![Some(9.0), Some(9.1), Some(9.3)]),
                ("other base", vec![Some(1.0), Some(1.2), Some(1.1)]),
                ("other", vec![Some(3.0), Some(3.1), Some(3.2)]),
            ],
        );
        assert!(table.rows[2].cells[0].as_ref().unwrap().p_value.unwrap() > 0.9);
        for row in &mut table.rows[1..] {
            row.baseline = Some("other base".into());
        }
        table.compare();
        let p_value = |row: usize| table.rows[row].cells[0].as_ref().unwrap().p_value;
        assert_eq!((p_value(0), p_value(1)), (None, None));
        assert!(p_value(2).unwrap() < LEVEL);
    }

    #[test]
    fn better_is_up_or_down_as_the_metric_says() {
        let rows = |higher: bool| {
            [
                ("base", vec![Some(5.0), Some(6.0), Some(5.5)]),
                ("high", vec![Some(7.0), Some(8.1), Some(7.4)]),
                ("low", vec![Some(3.0), Some(4.1), None]),
                ("non-private", vec![Some(if higher { 9.0 } else { 1.0 })]),
            ]
        };
        for (higher, best) in [(true, 1), (false, 2)] {
            let table = table(higher, &rows(higher));
            let cell = |row: usize| table.rows[row].cells[0].clone().unwrap();
            assert!(cell(best).best && !cell(0).best && !cell(3 - best).best);
            assert_eq!((cell(0).p_value, cell(3).best, cell(3).p_value), (None, false, None));
            assert_eq!(cell(1).p_value.unwrap() < LEVEL, higher);
            assert_eq!(cell(2).p_value.unwrap() < LEVEL, !higher);
            assert_eq!((cell(2).mean, cell(2).finished()), (Some(3.55), (2, 3)));
        }
    }
}
