//! The table as a chart: one line for each row, columns from left to right.

use super::file::Sweep;
use super::table::Table;
use crate::failure::Outcome;
use crate::plot::{INK, legend, write};
use plotters::prelude::*;
use std::path::Path;
use toml::Value;

/// Where the columns stand.
struct Across {
    title: String,
    places: Vec<f64>,
    /// Whether the places are the columns' own numbers.
    numeric: bool,
}

/// ε if every column sets it, or another key that every column sets to a number; else the columns one after the other.
fn across(sweep: &Sweep) -> Across {
    let number = |value: &Value| value.as_float().or(value.as_integer().map(|i| i as f64));
    let places = |key: &str| -> Option<Vec<f64>> {
        let places: Option<Vec<f64>> =
            sweep.columns.iter().map(|column| number(column.set.get(key)?)).collect();
        // Two columns on one place would hide each other.
        places.filter(|all| all.windows(2).all(|pair| pair[0] < pair[1]))
    };
    let keys = sweep.columns[0].set.keys().map(String::as_str);
    let mut candidates = std::iter::once("privacy.epsilon").chain(keys);
    let found = candidates.find_map(|key| Some((key, places(key).filter(|all| all.len() > 1)?)));
    match found {
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

/// Draws the means with their standard errors, and what was published as rings.
pub fn draw(path: &Path, sweep: &Sweep, table: &Table) -> Outcome {
    let across = across(sweep);
    let points = |row: usize| {
        let cells = table.rows[row].cells.iter().zip(&across.places);
        cells.filter_map(|(cell, &x)| {
            Some((x, cell.as_ref()?.mean?, cell.as_ref()?.standard_error.unwrap_or(0.0)))
        })
    };
    let rings = |row: usize| {
        let cells = table.rows[row].cells.iter().zip(&across.places);
        cells.filter_map(|(cell, &x)| Some((x, cell.as_ref()?.published?)))
    };
    let heights = (0..table.rows.len())
        .flat_map(|row| points(row).flat_map(|(_, y, e)| [y - e, y + e]).chain(rings(row).map(|(_, y)| y)));
    let (low, high) = ends(heights, 0.08);
    let (left, right) = ends(across.places.iter().copied(), 0.06);
    write(path, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(left..right, low..high)?;
        let label = |x: &f64| {
            let near = across.places.iter().position(|place| (place - x).abs() < 1e-9);
            near.map_or(String::new(), |i| table.columns[i].clone())
        };
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT).bold_line_style(INK.mix(0.15)).disable_x_mesh();
        mesh.x_desc(across.title.as_str()).y_desc(table.metric.as_str());
        if !across.numeric {
            // One label for each whole number, where the columns are.
            mesh.x_labels(2 * table.columns.len().max(2)).x_label_formatter(&label);
        }
        mesh.draw()?;
        for row in 0..table.rows.len() {
            let colour = Palette99::pick(row).to_rgba();
            let line: Vec<(f64, f64, f64)> = points(row).collect();
            let line_style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(line.iter().map(|&(x, y, _)| (x, y)), line_style))?
                .label(table.rows[row].label.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], line_style));
            chart.draw_series(line.iter().map(|&(x, y, _)| Circle::new((x, y), 3, colour.filled())))?;
            chart.draw_series(
                line.iter()
                    .map(|&(x, y, e)| PathElement::new([(x, y - e), (x, y + e)], colour.stroke_width(1))),
            )?;
            chart.draw_series(rings(row).map(|(x, y)| Circle::new((x, y), 5, colour.stroke_width(1))))?;
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)
    })
}

/// The ends of an axis that holds all values, with some room on both sides.
fn ends(values: impl Iterator<Item = f64>, room: f64) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return (0.0, 1.0);
    }
    let width = if high > low { high - low } else { high.abs().max(1.0) };
    (low - room * width, high + room * width)
}
