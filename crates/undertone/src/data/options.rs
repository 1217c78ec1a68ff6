//! How a file becomes a dataset.

use super::cut::LongTexts;
use super::error::{Error, Result};
use super::format::Format;
use serde::{Deserialize, Serialize};

/// What one person contributes, and what is therefore hidden as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A row of the file.
    #[default]
    Row,
    /// All rows of an author.
    Author {
        /// The column that names the author.
        column: String,
        /// The most examples of an author: the first in the file are kept. Which ones they are
        /// depends on that author's rows alone, so other authors learn nothing about them from it.
        at_most: usize,
    },
}

/// How a file becomes a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The file's format, where its extension does not say it.
    pub format: Option<Format>,
    /// The privacy unit.
    pub unit: Unit,
    /// What becomes of long texts in language modelling.
    pub long_texts: LongTexts,
    /// Whether to show a progress bar, if the error stream is a terminal.
    pub progress: bool,
}

impl Options {
    /// The most examples that a privacy unit can have, whatever the file holds.
    pub fn most_per_unit(&self) -> usize {
        match &self.unit {
            Unit::Row => self.long_texts.most_per_text(),
            Unit::Author { at_most, .. } => *at_most,
        }
    }

    /// Refuses limits of zero.
    pub fn check(&self) -> Result<()> {
        if self.long_texts.most_per_text() == 0 {
            return Err(Error::invalid("the most examples of a text", 0, "at least 1"));
        }
        if self.most_per_unit() == 0 {
            return Err(Error::invalid("the most examples of an author", 0, "at least 1"));
        }
        Ok(())
    }
}
