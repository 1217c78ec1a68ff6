//! Readers that stream the rows of text files.
//!
//! No reader loads its whole file: the memory needed is that of the longest row (for Parquet, of
//! one page per column).

mod array;
mod csv;
mod files;
mod header;
mod input;
mod jsonl;
mod lines;
mod memory;
mod meter;
mod nested;
mod pages;
mod parquet;
mod raw;
mod text;
mod tsv;

use super::error::{Error, Result};
use super::format::Format;
use csv::Separator;
pub use files::files;
pub use memory::MemoryFile;
pub(crate) use meter::Meter;
pub use raw::{RawRecord, RawRecords, RawValue, raw_records};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use undertone_settings::OnBadRow;

/// A row of a file: the values of the requested columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// First line of the row, counting from 1 including the header; for Parquet, the row number. If
    /// several files are read as one, the count continues across them.
    pub line: u64,
    /// The values, in the order of the requested columns.
    pub values: Vec<String>,
}

type Source = Box<dyn Iterator<Item = Result<Row>> + Send>;

/// The rows of a file, or of several files read as one, until the end or the first error.
pub struct Rows {
    first: Option<Row>,
    rest: Option<Source>,
    meter: Meter,
    on_bad_row: OnBadRow,
    skipped: u64,
    /// The remaining files.
    others: VecDeque<PathBuf>,
    reader: Reader,
    /// Number of lines in the preceding files, and the last line so far.
    lines: (u64, u64),
}

/// How files are opened.
struct Reader {
    format: Format,
    columns: Vec<String>,
    /// Whether lists and objects are read, as JSON text.
    nested: bool,
}

impl Rows {
    /// Reading progress.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Number of rows that were skipped because they cannot be read.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next readable row, or the error that ends the file.
    fn read(&mut self) -> Option<Result<Row>> {
        loop {
            match self.rest.as_mut()?.next() {
                None => {
                    let path = self.others.pop_front()?;
                    match self.reader.open(&path) {
                        Ok((rest, meter)) => (self.rest, self.meter) = (Some(rest), meter),
                        Err(error) => return Some(Err(error)),
                    }
                    self.lines.0 = self.lines.1;
                }
                Some(Ok(row)) => {
                    self.lines.1 = self.lines.0 + row.line;
                    return Some(Ok(Row { line: self.lines.1, ..row }));
                }
                // The reader is positioned after the row, whatever is wrong with it.
                Some(Err(Error::TornRow { .. } | Error::BadJson { .. }))
                    if self.on_bad_row == OnBadRow::Skip =>
                {
                    self.skipped += 1;
                }
                next => return next,
            }
        }
    }
}

impl Iterator for Rows {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        if let Some(row) = self.first.take() {
            return Some(Ok(row));
        }
        let next = self.read();
        if !matches!(next, Some(Ok(_))) {
            // After an error, the rest of the file cannot be trusted to contain valid rows.
            self.rest = None;
        }
        next
    }
}

/// Opens a file and reads the named columns. A pattern or a folder stands for its [files](files()).
///
/// In a JSONL file, `a.b` is column `b` of the object in column `a`, unless there is a column
/// `a.b`. A file without rows is rejected here, as is an invalid first row.
pub fn rows(path: &Path, format: Format, columns: &[&str]) -> Result<Rows> {
    open(path, format, columns, false, OnBadRow::Refuse)
}

/// Like [`rows`], but can skip rows that cannot be read.
pub fn rows_or_skip(
    path: &Path,
    format: Format,
    columns: &[&str],
    on_bad_row: OnBadRow,
) -> Result<Rows> {
    open(path, format, columns, false, on_bad_row)
}

/// Like [`rows_or_skip`], with lists and objects of JSONL and Parquet files as JSON text.
pub fn rows_with_nested(
    path: &Path,
    format: Format,
    columns: &[&str],
    on_bad_row: OnBadRow,
) -> Result<Rows> {
    open(path, format, columns, true, on_bad_row)
}

fn open(
    path: &Path,
    format: Format,
    columns: &[&str],
    nested: bool,
    on_bad_row: OnBadRow,
) -> Result<Rows> {
    let mut others: VecDeque<PathBuf> = files(path)?.into();
    let columns = columns.iter().map(|column| column.to_string()).collect();
    let reader = Reader { format, columns, nested };
    let first = others.pop_front().unwrap_or_else(|| path.to_owned());
    let (rest, meter) = reader.open(&first)?;
    let mut rows = Rows {
        first: None,
        rest: Some(rest),
        meter,
        on_bad_row,
        skipped: 0,
        others,
        reader,
        lines: (0, 0),
    };
    match rows.read() {
        None => Err(Error::EmptyFile { file: path.into() }),
        Some(first) => Ok(Rows { first: Some(first?), ..rows }),
    }
}

impl Reader {
    fn open(&self, path: &Path) -> Result<(Source, Meter)> {
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let columns = columns.as_slice();
        Ok(match self.format {
            Format::Tsv => boxed(tsv::Tsv::open(path, columns)?, tsv::Tsv::meter),
            Format::Csv | Format::QuotedTsv => {
                boxed(csv::Csv::open(path, columns, separator(self.format))?, csv::Csv::meter)
            }
            Format::Jsonl => {
                boxed(jsonl::Jsonl::open(path, columns, self.nested)?, jsonl::Jsonl::meter)
            }
            Format::Parquet => {
                boxed(parquet::Parquet::open(path, columns, self.nested)?, parquet::Parquet::meter)
            }
            Format::Text => boxed(text::Text::open(path, columns)?, text::Text::meter),
        })
    }
}

/// The columns of a file, or of the first of several; for JSON, those of the first object.
pub fn columns(path: &Path, format: Format) -> Result<Vec<String>> {
    let first = files(path)?.into_iter().next();
    let path = first.as_deref().unwrap_or(path);
    match format {
        Format::Tsv => tsv::columns(path),
        Format::Csv | Format::QuotedTsv => csv::columns(path, separator(format)),
        Format::Jsonl => jsonl::columns(path),
        Format::Parquet => parquet::columns(path),
        Format::Text => Ok(vec![text::COLUMN.to_owned()]),
    }
}

/// Like [`columns`], with the columns of objects within JSON objects as dotted paths, by which they
/// can be read.
pub fn nested_columns(path: &Path, format: Format) -> Result<Vec<String>> {
    match format {
        Format::Jsonl => {
            let first = files(path)?.into_iter().next();
            jsonl::nested_columns(first.as_deref().unwrap_or(path))
        }
        _ => columns(path, format),
    }
}

fn separator(format: Format) -> Separator {
    if format == Format::QuotedTsv { Separator::Tab } else { Separator::CommaOrSemicolon }
}

fn boxed<R>(reader: R, meter: impl Fn(&R) -> Meter) -> (Source, Meter)
where
    R: Iterator<Item = Result<Row>> + Send + 'static,
{
    let meter = meter(&reader);
    (Box::new(reader), meter)
}
