//! Charts: SVG in the page's colors, for wide and for narrow screens, with a table of the numbers.

mod axis;
mod bars;
mod canvas;
mod file;
mod heat;
mod plot;

pub use axis::Axis;
pub use bars::{Bar, Group, bars};
pub use file::MARK;
pub use heat::heat_map;
pub use plot::{Mark, Plot, Series};

use crate::document::Table;

/// A chart with its numbers as a table.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    /// Caption, which is also the label for screen readers.
    pub description: String,
    /// Color, mark and name of each series.
    pub legend: Vec<(Ink, Mark, String)>,
    /// Width and height of the SVG for wide screens, in pixels.
    pub size: (f64, f64),
    /// SVG for wide screens and paper.
    pub wide: String,
    /// SVG for narrow screens.
    pub narrow: String,
    /// The plotted numbers.
    pub table: Table,
}

/// Colors by role; the page's style sheet defines them, for light and dark mode.
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

    /// Its color in light mode, for files without a style sheet.
    fn fixed(self) -> &'static str {
        match self {
            Self::Text => "#1d2530",
            Self::Faint => "#9aa3ad",
            Self::Paper => "#ffffff",
            Self::Series(n) => SERIES_COLORS[usize::from(n % SERIES)],
        }
    }

    /// All colors.
    fn all() -> impl Iterator<Item = Self> {
        [Self::Text, Self::Faint, Self::Paper].into_iter().chain((0..SERIES).map(Self::Series))
    }
}

/// Number of series colors.
pub const SERIES: u8 = SERIES_COLORS.len() as u8;

/// Series colors in light mode.
const SERIES_COLORS: [&str; 9] = [
    "#1d5fa6", "#c25a12", "#2b8357", "#86499c", "#8d7413", "#b5325f", "#2e8c9e", "#6a6f78",
    "#5b8f1d",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_of_files_are_those_of_the_page() {
        let css = include_str!("../style.css");
        for ink in Ink::all() {
            let rule = format!("{}: {};", ink.variable(), ink.fixed());
            assert!(css.contains(&rule), "{rule}");
        }
        assert!(!css.contains(&format!("--series-{SERIES}:")));
    }
}
