//! Grouped horizontal bars: one group per measure, with one bar per run.

use super::canvas::{Anchor, Canvas, draw};
use super::{Chart, Ink, Mark};
use crate::document::Table;
use crate::error::Result;

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Name on the left.
    pub name: String,
    /// Series, by index into the legend.
    pub series: usize,
    /// Length, in \[0, 1\].
    pub length: f64,
    /// Text on the right.
    pub value: String,
    /// Position of a mark, in \[0, 1\]: a bound on the length.
    pub bound: Option<f64>,
}

/// The bars of a measure.
#[derive(Clone, Debug)]
pub struct Group {
    /// The measure.
    pub title: String,
    pub bars: Vec<Bar>,
}

/// Height of a group's title and of a bar, in pixels.
const TITLE: f64 = 28.0;
const BAR: f64 = 24.0;
/// Space between groups.
const GAP: f64 = 14.0;

/// Draws the groups in a column; `legend` names the series.
pub fn bars(title: &str, description: &str, legend: &[&str], groups: &[Group]) -> Result<Chart> {
    let label = format!("{title}. {description}");
    let height = |bar: f64| {
        groups.iter().map(|group| TITLE + bar * group.bars.len() as f64 + GAP).sum::<f64>()
    };
    let rows = groups.iter().flat_map(|group| {
        let row = |bar: &Bar| vec![group.title.clone(), bar.name.clone(), bar.value.clone()];
        group.bars.iter().map(row)
    });
    let ink = |series: usize| Ink::Series(series as u8);
    let name = |(i, name): (usize, &&str)| (ink(i), Mark::Bars, (*name).to_owned());
    Ok(Chart {
        title: title.to_owned(),
        description: description.to_owned(),
        legend: legend.iter().enumerate().map(name).collect(),
        size: (720.0, height(BAR)),
        wide: draw((720.0, height(BAR)), 13.0, &label, |canvas| paint(canvas, groups, BAR))?,
        narrow: draw((350.0, height(2.0 * BAR)), 12.0, &label, |canvas| {
            paint(canvas, groups, 2.0 * BAR)
        })?,
        table: Table::new(title, &["measure", "run", "value"], rows.collect()),
    })
}

/// Paints each bar beside its name, or below it if there is room for two lines.
fn paint(canvas: &mut Canvas, groups: &[Group], height: f64) -> Result<()> {
    let stacked = height > BAR;
    let all = || groups.iter().flat_map(|group| &group.bars);
    let widest = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| canvas.width_of(text)).fold(0.0, f64::max)
    };
    let names = widest(&mut all().map(|bar| &bar.name)).min(0.34 * canvas.width);
    let values = widest(&mut all().map(|bar| &bar.value)).min(0.4 * canvas.width);
    let left = if stacked { 0.0 } else { names + 12.0 };
    let right = if stacked { canvas.width } else { canvas.width - values - 12.0 };
    let mut top = 0.0;
    for group in groups {
        let title = fitting(canvas, &group.title, canvas.width);
        canvas.text(&title, (0.0, top + TITLE / 2.0), Anchor::RightOf, Ink::Text)?;
        top += TITLE;
        for bar in &group.bars {
            let (low, high) = match stacked {
                true => (top + BAR - 2.0, top + height - 8.0),
                false => (top + 3.0, top + height - 3.0),
            };
            let middle = (low + high) / 2.0;
            let name = fitting(canvas, &bar.name, if stacked { canvas.width } else { names });
            let value_at = match stacked {
                true => {
                    let line = top + BAR / 2.0;
                    canvas.text(&name, (0.0, line), Anchor::RightOf, Ink::Text)?;
                    (canvas.width, line)
                }
                false => {
                    canvas.text(&name, (left - 12.0, middle), Anchor::LeftOf, Ink::Text)?;
                    (canvas.width, middle)
                }
            };
            canvas.text(&bar.value, value_at, Anchor::LeftOf, Ink::Text)?;
            let at = |share: f64| left + share.clamp(0.0, 1.0) * (right - left);
            canvas.rectangle((left, low), (right, high), Ink::Faint, 0.16)?;
            let ink = Ink::Series(bar.series as u8);
            // Keep a bar of length zero visible.
            let end = at(bar.length).max(left + 2.0);
            canvas.rectangle((left, low), (end, high), ink, 1.0)?;
            let name = &bar.name;
            canvas.hover((end, middle), 9.0, format!("{}\n{name}: {}", group.title, bar.value));
            if let Some(bound) = bar.bound {
                let mark = [(at(bound), low - 2.0), (at(bound), high + 2.0)];
                canvas.line(&mark, Ink::Text, 1.6, 1.0, false)?;
            }
            top += height;
        }
        top += GAP;
    }
    Ok(())
}

/// The text, shortened to a width in pixels.
fn fitting(canvas: &Canvas, text: &str, width: f64) -> String {
    if canvas.width_of(text) <= width {
        return text.to_owned();
    }
    let letters = (width / canvas.width_of("m")).floor() as usize;
    let kept: String = text.chars().take(letters.saturating_sub(1)).collect();
    format!("{kept}…")
}
