//! A chart as a separate SVG file: title, wide drawing and legend, in the colors of light mode.
//!
//! Programs that read SVG files rarely know CSS variables, so colors are written out.

use super::{Chart, Ink, Mark};
use crate::error::{Error, Result};
use crate::html::escape;
use std::io::Write;
use std::path::Path;

/// Ends every chart; a file with this mark may be overwritten.
pub const MARK: &str = "<!-- undertone chart -->\n";

/// Space around the chart and height of its title, in pixels.
const MARGIN: f64 = 16.0;
const TITLE: f64 = 36.0;
/// Height of a line of the legend, width of a legend's key, and width of a character.
const LINE: f64 = 22.0;
const KEY: f64 = 30.0;
const CHARACTER: f64 = 7.2;

impl Chart {
    /// Writes the chart to a file atomically.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = self.file();
        undertone_run::write_atomically(path, |out| out.write_all(text.as_bytes()))
            .map_err(|e| Error::write(path, e))
    }

    fn file(&self) -> String {
        let (width, height) = self.size;
        let top = MARGIN + TITLE;
        let (legend, legend_height) = self.file_legend(top + height + MARGIN);
        let (whole, high) = (width + 2.0 * MARGIN, top + height + MARGIN + legend_height);
        let place =
            format!("<svg x=\"{MARGIN}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"");
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{whole}\" height=\"{high}\" \
             viewBox=\"0 0 {whole} {high}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"var({paper})\"/>\n\
             <text x=\"{MARGIN}\" y=\"{baseline}\" font-family=\"sans-serif\" font-size=\"18\" \
             font-weight=\"600\" fill=\"var({ink})\">{title}</text>\n{drawing}\n{legend}</svg>\n{MARK}",
            paper = Ink::Paper.variable(),
            ink = Ink::Text.variable(),
            baseline = MARGIN + 16.0,
            title = escape(&self.title),
            // Without the page's style sheet, tooltip areas would be black.
            drawing = self
                .wide
                .replacen("<svg", &place, 1)
                .replace("class=\"hover\"", "fill=\"transparent\""),
        );
        Ink::all()
            .fold(text, |text, ink| text.replace(&format!("var({})", ink.variable()), ink.fixed()))
    }

    /// The legend starting at `top`, on as many lines as needed, and its height.
    fn file_legend(&self, top: f64) -> (String, f64) {
        // A single series needs no legend: the title names it.
        if matches!(self.legend.as_slice(), [(_, mark, _)] if *mark != Mark::Squares) {
            return (String::new(), 0.0);
        }
        let (mut svg, mut x, mut y) = (String::new(), MARGIN, top);
        for (ink, mark, name) in &self.legend {
            let width = KEY + CHARACTER * name.chars().count() as f64 + 18.0;
            if x > MARGIN && x + width > self.size.0 + MARGIN {
                (x, y) = (MARGIN, y + LINE);
            }
            svg.push_str(&key(*mark, &ink.variable(), (x, y)));
            svg.push_str(&format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" font-family=\"sans-serif\" font-size=\"13\" \
                 fill=\"var({})\">{}</text>\n",
                x + KEY,
                y + 4.5,
                Ink::Text.variable(),
                escape(name)
            ));
            x += width;
        }
        (svg, y - top + LINE)
    }
}

/// The sample of a mark, beside its name.
fn key(mark: Mark, variable: &str, (x, y): (f64, f64)) -> String {
    let line = |width: f64, dash: &str| {
        format!(
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"var({variable})\" \
             stroke-width=\"{width}\"{dash}/>\n",
            x + 22.0
        )
    };
    let disc = |fill: &str| {
        format!(
            "<circle cx=\"{}\" cy=\"{y}\" r=\"4.6\" fill=\"{fill}\" stroke=\"var({variable})\" \
             stroke-width=\"1.8\"/>\n",
            x + 11.0
        )
    };
    match mark {
        Mark::Line => line(2.4, ""),
        Mark::Beads => line(2.4, "") + &disc(&format!("var({variable})")),
        Mark::Thin => line(1.2, ""),
        Mark::Dashed => line(1.6, " stroke-dasharray=\"5 4\""),
        Mark::Discs => disc(&format!("var({variable})")),
        Mark::Rings => disc("none"),
        Mark::Squares | Mark::Bars => format!(
            "<rect x=\"{x}\" y=\"{}\" width=\"22\" height=\"11\" fill=\"var({variable})\"/>\n",
            y - 5.5
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::chart::{Axis, Mark, Plot, Series};
    use crate::document::Table;

    #[test]
    fn files_stand_alone() {
        let name = |x: f64| format!("{x:.1}");
        let points = vec![(0.0, 1.0), (1.0, 2.0)];
        let plot = Plot {
            x: Axis::linear("x", 0.0, 1.0, name),
            y: Axis::linear("y", 0.0, 2.0, name),
            series: vec![
                Series::new("a <b>", 0, Mark::Line, points.clone()),
                Series::new("c", 1, Mark::Rings, points),
            ],
        };
        let table = Table::new("t", &["x"], Vec::new());
        let file = plot.chart("Title & more", "d", table).unwrap().file();
        assert!(file.contains("Title &amp; more") && file.contains("a &lt;b&gt;"), "{file}");
        assert!(
            !file.contains("var(") && !file.contains("class=") && !file.contains("<b>"),
            "{file}"
        );
        assert_eq!(file.matches("<svg").count(), file.matches("</svg>").count());
        assert!(file.ends_with(super::MARK));
    }
}
