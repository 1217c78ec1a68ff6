//! Line and scatter plots.

use super::axis::Axis;
use super::canvas::{Anchor, Canvas, Place, draw};
use super::{Chart, Ink};
use crate::document::Table;
use crate::error::Result;

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Line,
    /// A thin line, for background series.
    Thin,
    /// A dashed line, for baselines.
    Dashed,
    Discs,
    Rings,
    /// A line with a disc at each point.
    Beads,
    /// Squares of a heat map.
    Squares,
    /// Horizontal bars.
    Bars,
}

/// A named data series.
#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub ink: Ink,
    pub mark: Mark,
    /// (x, y) of each point.
    pub points: Vec<(f64, f64)>,
    /// Error bar (lower, upper) of each point; empty for none.
    pub whiskers: Vec<(f64, f64)>,
    /// Name of each point, for labels and tooltips; empty to use the series' name.
    pub names: Vec<String>,
}

impl Series {
    /// A series without error bars.
    pub fn new(name: impl Into<String>, ink: u8, mark: Mark, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            ink: Ink::Series(ink),
            mark,
            points,
            whiskers: Vec::new(),
            names: Vec::new(),
        }
    }
}

/// Axes and data series.
#[derive(Clone, Debug)]
pub struct Plot {
    pub x: Axis,
    pub y: Axis,
    /// Series in drawing order.
    pub series: Vec<Series>,
}

/// Maximum number of labeled points per series.
const NAMES: usize = 8;

/// Maximum number of points with tooltips per series.
const HOVERS: usize = 60;

impl Plot {
    /// Renders the chart with its title, description and numbers.
    pub fn chart(&self, title: &str, description: &str, table: Table) -> Result<Chart> {
        self.sized_chart((720.0, 380.0), title, description, table)
    }

    /// Like [`Plot::chart`], with the size of the wide drawing.
    pub fn sized_chart(
        &self,
        size: (f64, f64),
        title: &str,
        description: &str,
        table: Table,
    ) -> Result<Chart> {
        let legend = self.series.iter().map(|s| (s.ink, s.mark, s.name.clone())).collect();
        Ok(Chart {
            title: title.to_owned(),
            description: description.to_owned(),
            legend,
            size,
            wide: draw(size, 13.0, &format!("{title}. {description}"), |canvas| {
                self.paint(canvas, (8, 6))
            })?,
            narrow: draw((350.0, 300.0), 12.0, &format!("{title}. {description}"), |canvas| {
                self.paint(canvas, (4, 5))
            })?,
            table,
        })
    }

    fn paint(&self, canvas: &mut Canvas, (across, up): (usize, usize)) -> Result<()> {
        let (x_ticks, y_ticks) = (self.x.ticks(across), self.y.ticks(up));
        let labels: Vec<String> = y_ticks.iter().map(|&y| self.y.label(y)).collect();
        let left = 14.0 + labels.iter().map(|label| canvas.width_of(label)).fold(10.0, f64::max);
        let (right, top, bottom) = (canvas.width - 22.0, 34.0, canvas.height - 48.0);
        let place = |x: f64, y: f64| -> Place {
            (left + self.x.share(x) * (right - left), bottom - self.y.share(y) * (bottom - top))
        };
        canvas.text(&self.y.name, (0.0, 10.0), Anchor::RightOf, Ink::Text)?;
        for (&y, label) in y_ticks.iter().zip(&labels) {
            let height = place(self.x.from, y).1;
            canvas.line(&[(left, height), (right, height)], Ink::Faint, 1.0, 0.35, false)?;
            canvas.text(label, (left - 8.0, height), Anchor::LeftOf, Ink::Text)?;
        }
        canvas.line(&[(left, bottom), (right, bottom)], Ink::Faint, 1.0, 1.0, false)?;
        for &x in &x_ticks {
            let across = place(x, self.y.from).0;
            canvas.line(
                &[(across, bottom), (across, bottom + 5.0)],
                Ink::Faint,
                1.0,
                1.0,
                false,
            )?;
            canvas.text(&self.x.label(x), (across, bottom + 8.0), Anchor::Below, Ink::Text)?;
        }
        canvas.text(
            &self.x.name,
            ((left + right) / 2.0, bottom + 29.0),
            Anchor::Below,
            Ink::Text,
        )?;
        for series in &self.series {
            self.paint_series(canvas, series, &place)?;
        }
        Ok(())
    }

    fn paint_series(
        &self,
        canvas: &mut Canvas,
        series: &Series,
        place: &dyn Fn(f64, f64) -> Place,
    ) -> Result<()> {
        let seen = |p: &(f64, f64)| p.0.is_finite() && p.1.is_finite();
        let places: Vec<Place> =
            series.points.iter().filter(|p| seen(p)).map(|p| place(p.0, p.1)).collect();
        let stroke = match series.mark {
            Mark::Line | Mark::Beads => Some((2.4, 1.0, false)),
            Mark::Thin => Some((1.2, 0.75, false)),
            Mark::Dashed => Some((1.6, 1.0, true)),
            Mark::Discs | Mark::Rings | Mark::Squares | Mark::Bars => None,
        };
        if let Some((width, opacity, dashed)) = stroke
            && places.len() > 1
        {
            canvas.line(&places, series.ink, width, opacity, dashed)?;
        }
        for (point, (low, high)) in series.points.iter().zip(&series.whiskers) {
            canvas.line(
                &[place(point.0, *low), place(point.0, *high)],
                series.ink,
                1.4,
                1.0,
                false,
            )?;
        }
        if matches!(series.mark, Mark::Discs | Mark::Rings | Mark::Beads) {
            let radius = if series.mark == Mark::Beads { 3.2 } else { 4.6 };
            for &place in &places {
                canvas.disc(place, radius, series.ink, series.mark != Mark::Rings)?;
            }
        }
        self.name_points(canvas, series, place)?;
        let every = series.points.len().div_ceil(HOVERS).max(1);
        for (i, point) in
            series.points.iter().enumerate().filter(|(i, p)| i % every == 0 && seen(p))
        {
            let name = series.names.get(i).unwrap_or(&series.name);
            let (x, y) = (self.x.label(point.0), self.y.label(point.1));
            canvas.hover(
                place(point.0, point.1),
                7.0,
                format!("{name}\n{}: {x}\n{}: {y}", self.x.name, self.y.name),
            );
        }
        Ok(())
    }

    /// Labels a few points with their names, except where labels would overlap.
    fn name_points(
        &self,
        canvas: &Canvas,
        series: &Series,
        place: &dyn Fn(f64, f64) -> Place,
    ) -> Result<()> {
        let mut taken: Vec<Place> = Vec::new();
        for (name, &(x, y)) in series.names.iter().zip(&series.points).take(NAMES) {
            let at = place(x, y);
            let near = |other: &Place| {
                (other.0 - at.0).abs() < 90.0 && (other.1 - at.1).abs() < canvas.font
            };
            if !at.1.is_finite() || taken.iter().any(near) {
                continue;
            }
            let (side, anchor) =
                if self.x.share(x) > 0.6 { (-9.0, Anchor::LeftOf) } else { (9.0, Anchor::RightOf) };
            canvas.text(name, (at.0 + side, at.1), anchor, Ink::Text)?;
            taken.push(at);
        }
        Ok(())
    }
}
