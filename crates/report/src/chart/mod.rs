//! Charts: SVG in the colours of the page that it stands on, once for wide and once for narrow
//! screens, with its numbers beside it.

mod axis;
mod canvas;
mod heat;
mod plot;

pub use axis::Axis;
pub use heat::heat_map;
pub use plot::{Mark, Plot, Series};

use crate::document::Table;

/// A drawing with its numbers.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What is drawn.
    pub title: String,
    /// What it shows, for those who cannot see it too.
    pub says: String,
    /// Colour, mark and name of each series.
    pub legend: Vec<(Ink, Mark, String)>,
    /// SVG for wide screens and paper.
    pub wide: String,
    /// SVG for narrow screens.
    pub narrow: String,
    /// The numbers.
    pub table: Table,
}

/// Colours by what they are for; the page's style sheet says what they are, in the light and in the
/// dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Of texts.
    Text,
    /// Of what stays behind: axes and lines between.
    Faint,
    /// Of the ground.
    Paper,
    /// Of the series, in order.
    Series(u8),
}

impl Ink {
    /// Its name in the style sheet.
    pub fn variable(self) -> String {
        match self {
            Self::Text => "--ink".to_owned(),
            Self::Faint => "--faint".to_owned(),
            Self::Paper => "--paper".to_owned(),
            Self::Series(n) => format!("--series-{}", n % SERIES),
        }
    }
}

/// How many colours there are for series.
pub const SERIES: u8 = 5;
