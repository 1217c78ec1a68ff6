//! Options for reading a dataset.

use super::LongTexts;
use super::error::{Error, Result};
use super::format::Format;
use super::hold_out::Part;
use serde::{Deserialize, Serialize};
use undertone_settings::OnBadRow;

/// The privacy unit: everything that one person contributes, which the guarantee protects as a
/// whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrivacyUnit {
    /// Example-level privacy: each row of the file is a unit.
    #[default]
    Row,
    /// User-level privacy: all rows of an author are one unit.
    Author {
        /// The column that names the author.
        column: String,
        /// Maximum number of examples per author; the first ones in the file are kept. The choice
        /// depends only on that author's rows, so it reveals nothing about other authors' rows.
        at_most: usize,
    },
}

/// Options for reading a dataset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The file's format, if its extension does not identify it.
    pub format: Option<Format>,
    pub unit: PrivacyUnit,
    /// Which units are read.
    pub part: Part,
    /// How language modeling treats texts above the maximum number of tokens.
    pub long_texts: LongTexts,
    /// Whether short texts of one unit are packed into sequences.
    pub pack: bool,
    /// What to do with a row that cannot be read.
    pub on_bad_row: OnBadRow,
    /// Whether to report progress to the [observer](crate::observe_reading).
    pub progress: bool,
}

impl Options {
    /// Maximum number of examples per privacy unit, determined by the options alone, whatever the
    /// file contains.
    pub fn most_per_unit(&self) -> usize {
        match &self.unit {
            PrivacyUnit::Row => self.long_texts.most_per_text(),
            PrivacyUnit::Author { at_most, .. } => *at_most,
        }
    }

    /// Rejects maxima of zero.
    pub fn check(&self) -> Result<()> {
        if self.long_texts.most_per_text() == 0 {
            return Err(Error::invalid("the maximum number of examples per text", 0, "at least 1"));
        }
        if self.most_per_unit() == 0 {
            return Err(Error::invalid(
                "the maximum number of examples per author",
                0,
                "at least 1",
            ));
        }
        Ok(())
    }
}
