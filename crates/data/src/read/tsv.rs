//! Tab-separated values as in GLUE: no quoting, so quotes are ordinary characters.

use super::super::error::{Error, Result};
use super::lines::Lines;
use super::{Meter, Row, header};
use std::path::Path;

pub(super) struct Tsv {
    lines: Lines,
    text: String,
    /// Number of fields in the header.
    width: usize,
    /// Indices of the requested columns.
    indices: Vec<usize>,
}

impl Tsv {
    pub fn open(path: &Path, columns: &[&str]) -> Result<Tsv> {
        let (lines, header) = open(path)?;
        let indices = header::indices(path, &header, columns)?;
        Ok(Tsv { lines, text: String::new(), width: header.len(), indices })
    }

    pub fn meter(&self) -> Meter {
        self.lines.meter().clone()
    }

    fn row(&mut self) -> Result<Option<Row>> {
        let mut blank = None;
        while let Some(line) = self.lines.read(&mut self.text)? {
            // Blank lines at the end of a file, as left by editors, are ignored; anywhere else, a
            // blank line is a row with missing fields.
            if self.text.is_empty() && self.width > 1 {
                blank.get_or_insert(line.number);
                continue;
            }
            if let Some(line) = blank {
                return Err(self.torn(line, 0));
            }
            let width = self.text.bytes().filter(|&byte| byte == b'\t').count() + 1;
            if width != self.width {
                return Err(self.torn(line.number, width));
            }
            let fields: Vec<&str> = self.text.split('\t').collect();
            let values = self.indices.iter().map(|&index| fields[index].to_owned()).collect();
            return Ok(Some(Row { line: line.number, values }));
        }
        Ok(None)
    }

    fn torn(&self, line: u64, fields: usize) -> Error {
        Error::TornRow { file: self.lines.file().into(), line, expected: self.width, found: fields }
    }
}

impl Iterator for Tsv {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        self.row().transpose()
    }
}

pub(super) fn columns(path: &Path) -> Result<Vec<String>> {
    open(path).map(|(_, header)| header)
}

fn open(path: &Path) -> Result<(Lines, Vec<String>)> {
    let mut lines = Lines::open(path)?;
    let mut text = String::new();
    match lines.read(&mut text)? {
        None => Err(Error::EmptyFile { file: path.into() }),
        Some(_) => Ok((lines, text.split('\t').map(str::to_owned).collect())),
    }
}
