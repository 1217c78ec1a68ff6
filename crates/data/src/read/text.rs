//! Plain text: every line is a row.

use super::super::error::Result;
use super::lines::Lines;
use super::{Meter, Row, header};
use std::path::Path;

/// Name of the only column.
pub(super) const COLUMN: &str = "text";

pub(super) struct Text {
    lines: Lines,
    text: String,
    /// Number of times the only column was requested.
    copies: usize,
}

impl Text {
    pub fn open(path: &Path, columns: &[&str]) -> Result<Text> {
        let lines = Lines::open(path)?;
        let copies = header::indices(path, &[COLUMN.to_owned()], columns)?.len();
        Ok(Text { lines, text: String::new(), copies })
    }

    pub fn meter(&self) -> Meter {
        self.lines.meter().clone()
    }

    fn row(&mut self) -> Result<Option<Row>> {
        while let Some(line) = self.lines.read(&mut self.text)? {
            if !self.text.trim().is_empty() {
                return Ok(Some(Row {
                    line: line.number,
                    values: vec![self.text.clone(); self.copies],
                }));
            }
        }
        Ok(None)
    }
}

impl Iterator for Text {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        self.row().transpose()
    }
}
