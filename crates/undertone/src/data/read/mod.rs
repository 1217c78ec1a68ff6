//! Readers that stream the rows of text files.
//!
//! No reader holds its whole file: the memory needed is that of the longest row (for Parquet, of a
//! page of each column).

mod csv;
mod header;
mod jsonl;
mod lines;
mod meter;
mod pages;
mod parquet;
mod text;
mod tsv;

use super::error::{Error, Result};
use super::format::Format;
pub(crate) use meter::Meter;
use std::path::Path;

/// A row of a file: the values of the requested columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// First line of the row, counting from 1 with the header; for Parquet, the row number.
    pub line: u64,
    /// The values, in the order of the requested columns.
    pub values: Vec<String>,
}

type Source = Box<dyn Iterator<Item = Result<Row>> + Send>;

/// The rows of a file, until its end or the first error.
pub struct Rows {
    first: Option<Row>,
    rest: Option<Source>,
    meter: Meter,
}

impl Rows {
    /// Reading progress.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }
}

impl Iterator for Rows {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        if let Some(row) = self.first.take() {
            return Some(Ok(row));
        }
        let next = self.rest.as_mut()?.next();
        if !matches!(next, Some(Ok(_))) {
            // After an error, what follows cannot be trusted to be a row.
            self.rest = None;
        }
        next
    }
}

/// Opens a file and reads the named columns.
///
/// In a JSONL file, `a.b` is column `b` of the object in column `a`, unless there is a column
/// `a.b`. A file without rows is an error here, as is an invalid first row.
pub fn rows(path: &Path, format: Format, columns: &[&str]) -> Result<Rows> {
    open(path, format, columns, false)
}

/// As [`rows`], with arrays and objects of a JSONL file as their JSON text.
pub fn rows_with_nested(path: &Path, format: Format, columns: &[&str]) -> Result<Rows> {
    open(path, format, columns, true)
}

fn open(path: &Path, format: Format, columns: &[&str], nested: bool) -> Result<Rows> {
    let (mut rest, meter): (Source, Meter) = match format {
        Format::Jsonl if nested => {
            boxed(jsonl::Jsonl::open(path, columns)?.with_nested(), jsonl::Jsonl::meter)
        }
        Format::Tsv => boxed(tsv::Tsv::open(path, columns)?, tsv::Tsv::meter),
        Format::Csv => boxed(csv::Csv::open(path, columns)?, csv::Csv::meter),
        Format::Jsonl => boxed(jsonl::Jsonl::open(path, columns)?, jsonl::Jsonl::meter),
        Format::Parquet => boxed(parquet::Parquet::open(path, columns)?, parquet::Parquet::meter),
        Format::Text => boxed(text::Text::open(path, columns)?, text::Text::meter),
    };
    match rest.next() {
        None => Err(Error::EmptyFile { file: path.into() }),
        Some(first) => Ok(Rows { first: Some(first?), rest: Some(rest), meter }),
    }
}

/// The columns of a file; for JSONL, those of its first object.
pub fn columns(path: &Path, format: Format) -> Result<Vec<String>> {
    match format {
        Format::Tsv => tsv::columns(path),
        Format::Csv => csv::columns(path),
        Format::Jsonl => jsonl::columns(path),
        Format::Parquet => parquet::columns(path),
        Format::Text => Ok(vec![text::COLUMN.to_owned()]),
    }
}

fn boxed<R>(reader: R, meter: impl Fn(&R) -> Meter) -> (Source, Meter)
where
    R: Iterator<Item = Result<Row>> + Send + 'static,
{
    let meter = meter(&reader);
    (Box::new(reader), meter)
}
