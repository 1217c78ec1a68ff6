//! Heat map of one number per parameter: layers from left to right, kinds of parameters from top to
//! bottom.

use super::canvas::{Anchor, Canvas, draw};
use super::{Chart, Ink, Mark};
use crate::document::Table;
use crate::error::Result;
use undertone_run::printable_line;

/// A kind of parameter, and its number by layer; `None` for parameters outside of layers.
type Row = (String, Vec<(Option<u32>, f64)>);

/// The heat map's rows, columns and range.
struct Rows {
    rows: Vec<Row>,
    layers: Vec<u32>,
    least: f64,
    most: f64,
}

/// Heat map of numbers by parameter name.
pub fn heat_map(title: &str, description: &str, numbers: &[(String, f64)]) -> Result<Chart> {
    let rows = Rows::of(numbers);
    let label = format!("{title}. {description}");
    let height = 40.0 + 28.0 * rows.rows.len() as f64;
    let narrow = 8.0 + 46.0 * rows.rows.len() as f64;
    let cells =
        numbers.iter().map(|(name, number)| vec![name.clone(), format!("{number:.4}")]).collect();
    Ok(Chart {
        title: title.to_owned(),
        description: description.to_owned(),
        legend: vec![(
            Ink::Series(0),
            Mark::Squares,
            format!("from {:.2} (pale) to {:.2} (strong)", rows.least, rows.most),
        )],
        size: (720.0, height),
        wide: draw((720.0, height), 12.0, &label, |canvas| rows.paint(canvas))?,
        narrow: draw((350.0, narrow), 12.0, &label, |canvas| rows.paint_narrow(canvas))?,
        table: Table::new(title, &["parameter", "number"], cells),
    })
}

impl Rows {
    fn of(numbers: &[(String, f64)]) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for (name, number) in numbers.iter().filter(|(_, number)| number.is_finite()) {
            let (layer, kind) = place(name);
            match rows.iter_mut().find(|row| row.0 == kind) {
                Some(row) => row.1.push((layer, *number)),
                None => rows.push((kind, vec![(layer, *number)])),
            }
        }
        let mut layers: Vec<u32> =
            rows.iter().flat_map(|row| &row.1).filter_map(|cell| cell.0).collect();
        layers.sort_unstable();
        layers.dedup();
        let all = || rows.iter().flat_map(|row| &row.1).map(|cell| cell.1);
        let (least, most) =
            (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
        Self { rows, layers, least, most }
    }

    /// A number scaled to \[0, 1\], from the smallest to the largest.
    fn share(&self, number: f64) -> f64 {
        if self.most > self.least { (number - self.least) / (self.most - self.least) } else { 0.5 }
    }

    fn cell(
        &self,
        canvas: &mut Canvas,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        name: String,
        number: f64,
    ) -> Result<()> {
        let share = self.share(number);
        canvas.rectangle(
            (x, y),
            (x + width - 2.0, y + height - 2.0),
            Ink::Series(0),
            0.08 + 0.87 * share,
        )?;
        let text =
            if number.abs() < 9.995 { format!("{number:.2}") } else { format!("{number:.0}") };
        if canvas.width_of(&text) + 2.0 < width {
            let ink = if share > 0.55 { Ink::Paper } else { Ink::Text };
            canvas.text(
                &text,
                (x + width / 2.0 - 1.0, y + height / 2.0 - 1.0),
                Anchor::Over,
                ink,
            )?;
        }
        canvas.hover(
            (x + width / 2.0, y + height / 2.0),
            height / 2.0,
            format!("{name}: {number:.4}"),
        );
        Ok(())
    }

    /// Wide layout: kinds on the left, a column for each layer, and one for parameters outside of
    /// layers.
    fn paint(&self, canvas: &mut Canvas) -> Result<()> {
        let left = 6.0
            + self.rows.iter().map(|row| canvas.width_of(&row.0)).fold(60.0, f64::max).min(300.0);
        let loose = self.rows.iter().flat_map(|row| &row.1).any(|cell| cell.0.is_none());
        let columns = self.layers.len() + usize::from(loose);
        let width = ((canvas.width - left) / columns.max(1) as f64).min(64.0);
        for (i, layer) in self.layers.iter().enumerate() {
            canvas.text(
                &layer.to_string(),
                (left + width * (i as f64 + 0.5), 24.0),
                Anchor::Over,
                Ink::Text,
            )?;
        }
        if !self.layers.is_empty() {
            canvas.text("layer", (0.0, 24.0), Anchor::RightOf, Ink::Text)?;
        }
        for (i, (kind, cells)) in self.rows.iter().enumerate() {
            let y = 38.0 + 28.0 * i as f64;
            canvas.text(
                &shortened(kind, canvas, left),
                (0.0, y + 13.0),
                Anchor::RightOf,
                Ink::Text,
            )?;
            for (layer, number) in cells {
                let column = layer
                    .and_then(|layer| self.layers.iter().position(|l| *l == layer))
                    .unwrap_or(self.layers.len());
                let name = layer.map_or(kind.clone(), |layer| format!("layer {layer}, {kind}"));
                self.cell(canvas, (left + width * column as f64, y), (width, 28.0), name, *number)?;
            }
        }
        Ok(())
    }

    /// Narrow layout: each kind above a strip of its layers.
    fn paint_narrow(&self, canvas: &mut Canvas) -> Result<()> {
        for (i, (kind, cells)) in self.rows.iter().enumerate() {
            let y = 4.0 + 46.0 * i as f64;
            let width = (canvas.width / cells.len().max(1) as f64).min(64.0);
            let available = canvas.width;
            canvas.text(
                &shortened(kind, canvas, available),
                (0.0, y + 8.0),
                Anchor::RightOf,
                Ink::Text,
            )?;
            for (j, (layer, number)) in cells.iter().enumerate() {
                let name = layer.map_or(kind.clone(), |layer| format!("layer {layer}, {kind}"));
                self.cell(canvas, (width * j as f64, y + 18.0), (width, 24.0), name, *number)?;
            }
        }
        Ok(())
    }
}

/// A name shortened to the available width; its end is kept, where names differ.
fn shortened(name: &str, canvas: &Canvas, available: f64) -> String {
    let name = printable_line(name);
    let fits = (available / canvas.width_of("x")).floor() as usize;
    let length = name.chars().count();
    if length <= fits {
        return name.into_owned();
    }
    let kept: String = name.chars().skip(length + 1 - fits.max(2)).collect();
    format!("…{kept}")
}

/// The layer number in a parameter's name, and the part of the name after it.
fn place(name: &str) -> (Option<u32>, String) {
    let parts: Vec<&str> = name.split('.').collect();
    match parts.iter().position(|part| part.parse::<u32>().is_ok()) {
        Some(at) => (parts[at].parse().ok(), parts[at + 1..].join(".")),
        None => (None, name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_find_their_rows_and_layers() {
        assert_eq!(
            place("bert.encoder.layer.3.attention.query.weight"),
            (Some(3), "attention.query.weight".into())
        );
        assert_eq!(place("classifier.bias"), (None, "classifier.bias".into()));
        let numbers: Vec<(String, f64)> = (0..4)
            .map(|i| (format!("h.{i}.attn.weight"), 0.5 + f64::from(i)))
            .chain([("score.<weight>".to_owned(), 1.0)])
            .collect();
        let chart = heat_map("Noise", "Where it went", &numbers).unwrap();
        assert_eq!(chart.table.rows.len(), 5);
        for svg in [&chart.wide, &chart.narrow] {
            assert!(
                svg.contains("attn.weight") && svg.contains("3.50") && !svg.contains('#'),
                "{svg}"
            );
            assert!(!svg.contains("<weight>"), "names are escaped");
        }
    }
}
