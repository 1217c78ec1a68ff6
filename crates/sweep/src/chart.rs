//! The table as a chart: one line per row, with the columns from left to right.

use crate::error::Result;
use crate::file::Sweep;
use crate::table::Table;
use plotters::prelude::*;
use std::path::Path;
use toml::Value;
use undertone_report::plot::{Area, Drawn, INK, write_sized};

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

/// Width for the legend next to the chart.
const LEGEND: u32 = 190;

/// Draws the means with their standard errors, and published figures as rings. Lines connect the
/// columns only if these are numbers.
pub fn draw(path: &Path, sweep: &Sweep, table: &Table) -> Result<()> {
    let across = across(sweep);
    // Offset if the columns are not numbers, so that rows do not overlap.
    let aside = |row: usize| {
        let middle = 0.5 * (table.rows.len() as f64 - 1.0);
        if across.numeric { 0.0 } else { 0.6 / table.rows.len() as f64 * (row as f64 - middle) }
    };
    let points = |row: usize| {
        let cells = table.rows[row]
            .cells
            .iter()
            .zip(across.places.iter().map(move |place| place + aside(row)));
        cells.filter_map(|(cell, x)| {
            Some((x, cell.as_ref()?.mean?, cell.as_ref()?.standard_error.unwrap_or(0.0)))
        })
    };
    let rings = |row: usize| {
        let cells = table.rows[row]
            .cells
            .iter()
            .zip(across.places.iter().map(move |place| place + aside(row)));
        cells.filter_map(|(cell, x)| Some((x, cell.as_ref()?.published?)))
    };
    let heights = (0..table.rows.len()).flat_map(|row| {
        points(row).flat_map(|(_, y, e)| [y - e, y + e]).chain(rings(row).map(|(_, y)| y))
    });
    let (low, high) = ends(heights, 0.08);
    let margin = if across.numeric { 0.06 } else { 0.5 / (table.columns.len().max(2) - 1) as f64 };
    let (left, right) = ends(across.places.iter().copied(), margin);
    let width = if across.numeric { 560 } else { (110 * table.columns.len() as u32).max(560) };
    let height = (22 * table.rows.len() as u32 + 40).max(440);
    let drawn = write_sized(path, (width + LEGEND, height), |area| {
        let (plain, beside) = area.split_horizontally(width);
        name_rows(&beside, table)?;
        let mut chart = ChartBuilder::on(&plain)
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
            // One label per column, at whole numbers.
            mesh.x_labels(2 * table.columns.len().max(2)).x_label_formatter(&label);
        }
        mesh.draw()?;
        for row in 0..table.rows.len() {
            let colour = Palette99::pick(row).to_rgba();
            let line: Vec<(f64, f64, f64)> = points(row).collect();
            if across.numeric {
                let line = line.iter().map(|&(x, y, _)| (x, y));
                chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
            }
            chart.draw_series(
                line.iter().map(|&(x, y, _)| Circle::new((x, y), 3, colour.filled())),
            )?;
            chart.draw_series(line.iter().map(|&(x, y, e)| {
                PathElement::new([(x, y - e), (x, y + e)], colour.stroke_width(1))
            }))?;
            chart.draw_series(
                rings(row).map(|(x, y)| Circle::new((x, y), 5, colour.stroke_width(1))),
            )?;
        }
        Ok(())
    });
    Ok(drawn?)
}

/// The legend: the rows' labels with their colors.
fn name_rows(area: &Area, table: &Table) -> Drawn {
    for (row, line) in table.rows.iter().enumerate() {
        let y = 28 + 22 * row as i32;
        let style = ("sans-serif", 13, &INK).into_text_style(area);
        let short: String = line.label.chars().take(26).collect();
        area.draw(&Circle::new((8, y + 6), 4, Palette99::pick(row).filled()))?;
        area.draw(&Text::new(short, (20, y), style))?;
    }
    Ok(())
}

/// The range of an axis that covers all values, with a margin on both sides.
fn ends(values: impl Iterator<Item = f64>, room: f64) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return (0.0, 1.0);
    }
    let width = if high > low { high - low } else { high.abs().max(1.0) };
    (low - room * width, high + room * width)
}
