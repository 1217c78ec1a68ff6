//! Charts: SVG in the page's colours, for wide and for narrow screens, with a table of the numbers.

mod axis;
mod bars;
mod canvas;
mod heat;
mod plot;

pub use axis::Axis;
pub use bars::{Bar, Group, bars};
pub use heat::heat_map;
pub use plot::{Mark, Plot, Series};

use crate::document::Table;

/// A chart with its numbers as a table.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    /// Caption, which is also the label for screen readers.
    pub description: String,
    /// Colour, mark and name of each series.
    pub legend: Vec<(Ink, Mark, String)>,
    /// SVG for wide screens and paper.
    pub wide: String,
    /// SVG for narrow screens.
    pub narrow: String,
    /// The plotted numbers.
    pub table: Table,
}

/// Colours by role; the page's style sheet defines them, for light and dark mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    Text,
    /// Axes and grid lines.
    Faint,
    /// Background.
    Paper,
    /// Data series, by index.
    Series(u8),
}

impl Ink {
    /// Name of its CSS variable.
    pub fn variable(self) -> String {
        match self {
            Self::Text => "--ink".to_owned(),
            Self::Faint => "--faint".to_owned(),
            Self::Paper => "--paper".to_owned(),
            Self::Series(n) => format!("--series-{}", n % SERIES),
        }
    }
}

/// Number of series colours.
pub const SERIES: u8 = 5;
