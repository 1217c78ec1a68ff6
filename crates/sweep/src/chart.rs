//! The table as a chart: one line per row, with the columns from left to right.

use crate::error::Result;
use crate::file::Sweep;
use crate::table::Table;
use std::path::Path;
use toml::Value;
use undertone_report::Table as Numbers;
use undertone_report::plot::{Axis, Mark, Plot, Series, short};

/// x positions of the columns.
struct Across {
    title: String,
    places: Vec<f64>,
    /// Whether the positions are the numbers that the columns set.
    numeric: bool,
}

/// The positions are ε if every column sets it, or another key that every column sets to a number;
/// otherwise the columns are evenly spaced.
fn across(sweep: &Sweep) -> Across {
    let number = |value: &Value| value.as_float().or(value.as_integer().map(|i| i as f64));
    let places = |key: &str| -> Option<Vec<f64>> {
        let places: Option<Vec<f64>> =
            sweep.columns.iter().map(|column| number(column.set.get(key)?)).collect();
        // Two columns at the same position would overlap.
        places.filter(|all| all.windows(2).all(|pair| pair[0] < pair[1]))
    };
    let keys = sweep.columns[0].set.keys().map(String::as_str);
    let mut candidates = std::iter::once("privacy.epsilon").chain(keys);
    let axis = candidates.find_map(|key| Some((key, places(key).filter(|all| all.len() > 1)?)));
    match axis {
        Some((key, places)) => {
            let title = if key == "privacy.epsilon" { "ε".to_owned() } else { key.to_owned() };
            Across { title, places, numeric: true }
        }
        None => {
            let places = (0..sweep.columns.len()).map(|i| i as f64).collect();
            Across { title: String::new(), places, numeric: false }
        }
    }
}

/// Draws the means with their standard errors, and published figures as rings. Lines connect the
/// columns only if these are numbers.
pub fn draw(path: &Path, sweep: &Sweep, table: &Table) -> Result<()> {
    let across = across(sweep);
    let mut series = Vec::new();
    for (row, line) in table.rows.iter().enumerate() {
        // Offset if the columns are not numbers, so that rows do not overlap.
        let middle = 0.5 * (table.rows.len() as f64 - 1.0);
        let aside = match across.numeric {
            true => 0.0,
            false => 0.6 / table.rows.len() as f64 * (row as f64 - middle),
        };
        let (mut means, mut whiskers, mut published) = (Vec::new(), Vec::new(), Vec::new());
        for (cell, place) in line.cells.iter().zip(&across.places) {
            let Some(cell) = cell else { continue };
            let x = place + aside;
            if let Some(mean) = cell.mean {
                let error = cell.standard_error.unwrap_or(0.0);
                means.push((x, mean));
                whiskers.push((mean - error, mean + error));
            }
            published.extend(cell.published.map(|figure| (x, figure)));
        }
        let mark = if across.numeric { Mark::Beads } else { Mark::Discs };
        let figures = Series::new(line.label.clone(), row as u8, mark, means);
        series.push(Series { whiskers, ..figures });
        if !published.is_empty() {
            let name = format!("{}, published", line.label);
            series.push(Series::new(name, row as u8, Mark::Rings, published));
        }
    }
    let heights = series.iter().flat_map(|curve: &Series| {
        let ends = curve.whiskers.iter().flat_map(|&(low, high)| [low, high]);
        curve.points.iter().map(|point| point.1).chain(ends)
    });
    let plot =
        Plot { y: Axis::around(&table.metric, heights, short), x: across.axis(table), series };
    let width =
        if across.numeric { 720.0 } else { (110.0 * table.columns.len() as f64).max(720.0) };
    let chart =
        plot.sized_chart((width, 440.0), &table.metric, "", Numbers::new("", &[], Vec::new()))?;
    Ok(chart.write(path)?)
}

impl Across {
    /// The axis: each column is a tick.
    fn axis(&self, table: &Table) -> Axis {
        let (first, last) = (self.places[0], self.places[self.places.len() - 1]);
        let room = if self.numeric { 0.06 * (last - first) } else { 0.5 };
        let names = self.places.iter().copied().zip(table.columns.iter().cloned()).collect();
        Axis::named(&self.title, first - room, last + room, names)
    }
}
