//! Charts as SVG files of their own, in fixed colours on white.

use crate::error::{Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::io::Write;
use std::path::Path;
use undertone_accounting::{CurvePoint, TradeOffPoint};

const SIZE: (u32, u32) = (720, 440);
/// The colour of texts and axes.
pub const INK: RGBColor = RGBColor(0x20, 0x2a, 0x3a);
const MAIN: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);
const SECOND: RGBColor = RGBColor(0xd0, 0x6a, 0x1a);

/// Ends every chart; a file with this mark may be overwritten.
pub const MARK: &str = "<!-- undertone chart -->\n";

/// What a chart is drawn on.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What the drawing of a chart comes to.
pub type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// Draws into memory and writes the file at once, so that a failure leaves no half of one.
fn write(path: &Path, draw: impl FnOnce(&Area) -> Drawn) -> Result<()> {
    write_sized(path, SIZE, draw)
}

/// As the other charts, in a size of its own: draws into memory and writes the file at once.
pub fn write_sized(path: &Path, size: (u32, u32), draw: impl FnOnce(&Area) -> Drawn) -> Result<()> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let drawn = area
            .fill(&WHITE)
            .map_err(Into::into)
            .and_then(|()| draw(&area))
            .and_then(|()| area.present().map_err(Into::into));
        drawn.map_err(|e| Error::write(path, e))?;
    }
    text.push_str(MARK);
    undertone_run::write_atomically(path, |out| out.write_all(text.as_bytes()))
        .map_err(|e| Error::write(path, e))
}

/// The noise multiplier of each epoch.
pub fn schedule(path: &Path, method: &str, noise: &[f64], beginning: Option<f64>) -> Result<()> {
    let top = noise.iter().copied().fold(beginning.unwrap_or(0.0), f64::max) * 1.1;
    write(path, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(format!("Noise schedule: {method}"), ("sans-serif", 20, &INK))
            .margin(14)
            .x_label_area_size(42)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..noise.len() as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .disable_x_mesh()
            .x_desc("epochs passed")
            .y_desc("noise multiplier")
            .x_labels(noise.len().min(12) + 1)
            .x_label_formatter(&|x| {
                if x.fract() == 0.0 { format!("{x:.0}") } else { String::new() }
            })
            .draw()?;
        let mut corners = Vec::new();
        for (epoch, &s) in noise.iter().enumerate() {
            corners.extend([(epoch as f64, s), (epoch as f64 + 1.0, s)]);
        }
        chart
            .draw_series(LineSeries::new(corners, MAIN.stroke_width(3)))?
            .label("schedule")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], MAIN.stroke_width(3)));
        for (epoch, &s) in noise.iter().enumerate().filter(|_| noise.len() <= 12) {
            let place = (epoch as f64 + 0.5, s + 0.02 * top);
            let style = ("sans-serif", 13, &INK).into_text_style(area).pos(CENTRE_ABOVE);
            chart.draw_series([Text::new(format!("{s:.4}"), place, style)])?;
        }
        if let Some(beginning) = beginning {
            let line = [(0.0, beginning), (noise.len() as f64, beginning)];
            chart
                .draw_series(LineSeries::new(line, SECOND.stroke_width(2)))?
                .label("beginning (uniform at ε − reserve)")
                .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], SECOND.stroke_width(2)));
            legend(&mut chart, SeriesLabelPosition::LowerLeft)?;
        }
        Ok(())
    })
}

/// A number for each parameter, layers from left to right and kinds of parameters from top to
/// bottom; what belongs to no layer has a column of its own.
pub fn heat_map(path: &Path, title: &str, numbers: &[(String, f64)]) -> Result<()> {
    let placed: Vec<(Option<u32>, String, f64)> = numbers
        .iter()
        .map(|(name, number)| {
            let (layer, kind) = place(name);
            (layer, kind, *number)
        })
        .collect();
    let mut kinds: Vec<&str> = Vec::new();
    let mut layers: Vec<Option<u32>> = placed.iter().map(|cell| cell.0).collect();
    layers.sort_by_key(|layer| layer.map_or(u32::MAX, |layer| layer));
    layers.dedup();
    for (_, kind, _) in &placed {
        if !kinds.contains(&kind.as_str()) {
            kinds.push(kind);
        }
    }
    let (cell, left, top) = ((54_i32, 26_i32), 330_i32, 64_i32);
    let size = (left + cell.0 * layers.len() as i32 + 20, top + cell.1 * kinds.len() as i32 + 20);
    let least = placed.iter().map(|cell| cell.2).fold(f64::INFINITY, f64::min);
    let most = placed.iter().map(|cell| cell.2).fold(f64::NEG_INFINITY, f64::max);
    write_sized(path, (size.0.max(420) as u32, size.1 as u32), |area| {
        let centred = |height: u32| ("sans-serif", height, &INK).into_text_style(area).pos(CENTRE);
        area.draw(&Text::new(
            title.to_owned(),
            (14, 12),
            ("sans-serif", 18, &INK).into_text_style(area),
        ))?;
        for (i, layer) in layers.iter().enumerate() {
            let name = layer.map_or("–".to_owned(), |layer| layer.to_string());
            let at = (left + cell.0 * i as i32 + cell.0 / 2, top - 12);
            area.draw(&Text::new(name, at, centred(13)))?;
        }
        for (i, kind) in kinds.iter().enumerate() {
            let at = (14, top + cell.1 * i as i32 + 7);
            area.draw(&Text::new(
                (*kind).to_owned(),
                at,
                ("sans-serif", 13, &INK).into_text_style(area),
            ))?;
        }
        for (layer, kind, number) in &placed {
            let column = layers.iter().position(|known| known == layer).unwrap_or(0) as i32;
            let row = kinds.iter().position(|known| known == kind).unwrap_or(0) as i32;
            let (x, y) = (left + cell.0 * column, top + cell.1 * row);
            let share = if most > least { (number - least) / (most - least) } else { 0.5 };
            let mix = |from: u8, to: u8| {
                (f64::from(from) + share * (f64::from(to) - f64::from(from))) as u8
            };
            let colour = RGBColor(mix(0xf4, MAIN.0), mix(0xf6, MAIN.1), mix(0xfa, MAIN.2));
            area.draw(&Rectangle::new(
                [(x, y), (x + cell.0 - 2, y + cell.1 - 2)],
                colour.filled(),
            ))?;
            let ink = if share > 0.6 { &WHITE } else { &INK };
            let style = ("sans-serif", 12, ink).into_text_style(area).pos(CENTRE);
            let text =
                if number.abs() < 9.995 { format!("{number:.2}") } else { format!("{number:.0}") };
            area.draw(&Text::new(text, (x + cell.0 / 2 - 1, y + cell.1 / 2 - 1), style))?;
        }
        Ok(())
    })
}

/// The layer that a parameter's name holds, and the rest of the name behind it.
fn place(name: &str) -> (Option<u32>, String) {
    let parts: Vec<&str> = name.split('.').collect();
    match parts.iter().position(|part| part.parse::<u32>().is_ok()) {
        Some(at) => (parts[at].parse().ok(), parts[at + 1..].join(".")),
        None => (None, name.to_owned()),
    }
}

const CENTRE: plotters::style::text_anchor::Pos = plotters::style::text_anchor::Pos {
    h_pos: plotters::style::text_anchor::HPos::Center,
    v_pos: plotters::style::text_anchor::VPos::Center,
};

const CENTRE_ABOVE: plotters::style::text_anchor::Pos = plotters::style::text_anchor::Pos {
    h_pos: plotters::style::text_anchor::HPos::Center,
    v_pos: plotters::style::text_anchor::VPos::Bottom,
};

/// δ against ε, δ on a logarithmic axis.
pub fn privacy_curve(path: &Path, points: &[CurvePoint]) -> Result<()> {
    let right = points.iter().map(|p| p.epsilon).fold(0.0, f64::max);
    let least =
        points.iter().map(|p| p.delta.upper).filter(|d| *d > 0.0).fold(1.0, f64::min).max(1e-18);
    write(path, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption("Privacy curve", ("sans-serif", 20, &INK))
            .margin(14)
            .x_label_area_size(42)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..right, (least..1.0).log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .x_desc("ε")
            .y_desc("δ")
            .y_label_formatter(&|d| format!("{d:.0e}"))
            .draw()?;
        let upper = points.iter().map(|p| (p.epsilon, p.delta.upper.max(least)));
        let lower = points.iter().map(|p| (p.epsilon, p.delta.lower.max(least)));
        chart
            .draw_series(LineSeries::new(upper, MAIN.stroke_width(3)))?
            .label("certified upper bound")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], MAIN.stroke_width(3)));
        chart
            .draw_series(LineSeries::new(lower, SECOND.stroke_width(1)))?
            .label("certified lower bound")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], SECOND.stroke_width(1)));
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

/// The best attacker's true- against false-positive rate.
pub fn trade_off(path: &Path, points: &[TradeOffPoint]) -> Result<()> {
    write(path, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption("What the best attacker can reach", ("sans-serif", 20, &INK))
            .margin(14)
            .x_label_area_size(42)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..1.0, 0.0..1.0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .x_desc("false-positive rate")
            .y_desc("true-positive rate")
            .draw()?;
        let upper = points.iter().map(|p| (p.false_positive_rate, p.true_positive_rate.upper));
        chart
            .draw_series(LineSeries::new(upper, MAIN.stroke_width(3)))?
            .label("at most")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], MAIN.stroke_width(3)));
        let guess = [(0.0, 0.0), (1.0, 1.0)];
        chart
            .draw_series(LineSeries::new(guess, INK.mix(0.5).stroke_width(1)))?
            .label("guessing")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], INK.mix(0.5).stroke_width(1)));
        legend(&mut chart, SeriesLabelPosition::LowerRight)
    })
}

fn legend<'a, X: Ranged + 'a, Y: Ranged + 'a>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    position: SeriesLabelPosition,
) -> Drawn {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(INK.mix(0.3))
        .draw()
        .map_err(|e| e.to_string().into())
}

/// Curves of true positives against false positives, with the diagonal of guessing.
pub fn roc(path: &Path, title: &str, curves: &[(&str, &[(f64, f64)])]) -> Result<()> {
    write(path, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 20))
            .margin(15)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..1.0, 0.0..1.0)?;
        chart.configure_mesh().x_desc("false positive rate").y_desc("true positive rate").draw()?;
        chart.draw_series(LineSeries::new([(0.0, 0.0), (1.0, 1.0)], BLACK.mix(0.3)))?;
        for (i, (name, points)) in curves.iter().enumerate() {
            let colour = Palette99::pick(i).stroke_width(2);
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour))?
                .label(*name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], Palette99::pick(i).stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    })
}

/// Curves over a common axis, a line with a name for each; the other axis begins at 0.
pub fn lines(
    path: &Path,
    title: &str,
    (across, up): (&str, &str),
    curves: &[(String, Vec<(f64, f64)>)],
) -> Result<()> {
    let points = || curves.iter().flat_map(|(_, points)| points.iter().copied());
    let top = points().map(|(_, y)| y).filter(|y| y.is_finite()).fold(0.0, f64::max).max(1e-9);
    let right = points().map(|(x, _)| x).fold(0.0, f64::max).max(1.0);
    write(path, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 20, &INK))
            .margin(14)
            .x_label_area_size(42)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..right, 0.0..1.08 * top)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .x_desc(across)
            .y_desc(up)
            .draw()?;
        for (i, (name, points)) in curves.iter().enumerate() {
            let points = points.iter().copied().filter(|(_, y)| y.is_finite());
            chart
                .draw_series(LineSeries::new(points, Palette99::pick(i).stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], Palette99::pick(i).stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.85))
            .border_style(INK.mix(0.3))
            .draw()?;
        Ok(())
    })
}
