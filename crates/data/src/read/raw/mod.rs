//! Records as they stand in a file: every byte, and where the values are.
//!
//! The texts of all records, one after another, are the file, byte by byte (decompressed, if it is
//! compressed). So a value can be changed in place and everything else stays as it was: quoting,
//! escapes, line breaks, byte order mark, blank lines and damaged rows.

mod csv;
mod json;

use super::super::error::{Error, Result};
use super::super::format::Format;
use super::Rows;
use super::header;
use super::input::Input;
use super::lines::MOST_BYTES;
use std::collections::VecDeque;
use std::io::{BufRead, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use undertone_settings::OnBadRow;

const MARK: &str = "\u{feff}";

/// Some lines of a file: a row, a header, a blank line, or a line of a JSON array.
#[derive(Debug)]
pub struct RawRecord {
    /// The number of its first line, from 1.
    pub line: u64,
    /// Its bytes, including line breaks.
    pub text: String,
    /// The values in it, in order; none in a header or a blank line.
    pub values: Vec<RawValue>,
    /// Whether it is a row that no other reader accepts: with too few or too many fields, misplaced
    /// quotes or invalid JSON. Of the latter two, the whole text is one value.
    pub is_damaged: bool,
}

/// A value, and where it is in its record.
#[derive(Debug)]
pub struct RawValue {
    /// The column; for JSON, the dotted path of keys.
    pub column: Arc<str>,
    /// The number of the row that it belongs to, from 1.
    pub row: u64,
    /// The value, without quotes and escapes.
    pub value: String,
    /// Whether it is a JSON number, which only a quoted text can replace.
    pub is_number: bool,
    /// Pairs of offsets, in the value and in the record, where escapes end. The first is that of
    /// the beginning.
    points: Vec<(usize, usize)>,
}

impl RawValue {
    /// The bytes of the record in which a byte range of the value is written.
    pub fn raw(&self, range: Range<usize>) -> Range<usize> {
        let at = |offset: usize| {
            let next = self.points.partition_point(|(value, _)| *value <= offset);
            let (value, raw) = self.points[next.max(1) - 1];
            raw + offset - value
        };
        at(range.start)..at(range.end)
    }
}

/// The records of a file, or of several files one after another.
pub struct RawRecords {
    file: PathBuf,
    format: Format,
    /// `None` for Parquet.
    input: Option<Input>,
    line: u64,
    row: u64,
    shape: Shape,
    /// The remaining files.
    others: VecDeque<PathBuf>,
}

enum Shape {
    /// Every line is a value.
    Text(Arc<str>),
    /// A header, then fields between tabs.
    Tsv(Vec<Arc<str>>),
    Csv(csv::Csv),
    Json(json::Json),
    /// Rows, which have no bytes to keep, and their columns.
    Parquet(Box<Rows>, Vec<Arc<str>>),
}

/// The records of a file, or of the [files](super::files()) of a pattern or a folder. The records
/// of a Parquet file have values and no text.
pub fn raw_records(path: &Path, format: Format) -> Result<RawRecords> {
    let mut others: VecDeque<PathBuf> = super::files(path)?.into();
    let file = others.pop_front().unwrap_or_else(|| path.to_owned());
    let (shape, input) = open(&file, format)?;
    Ok(RawRecords { file, format, input, line: 0, row: 0, shape, others })
}

fn open(path: &Path, format: Format) -> Result<(Shape, Option<Input>)> {
    let shape = match format {
        Format::Text => Shape::Text("text".into()),
        Format::Tsv => Shape::Tsv(Vec::new()),
        Format::Csv => Shape::Csv(csv::Csv::new(super::Separator::CommaOrSemicolon)),
        Format::QuotedTsv => Shape::Csv(csv::Csv::new(super::Separator::Tab)),
        Format::Jsonl => Shape::Json(json::Json::new(super::array::begins_array(path)?)),
        Format::Parquet => {
            let names = super::columns(path, format)?;
            let columns: Vec<&str> = names.iter().map(String::as_str).collect();
            let rows = super::rows_with_nested(path, format, &columns, OnBadRow::Refuse)?;
            let columns = columns.into_iter().map(Arc::from).collect();
            return Ok((Shape::Parquet(Box::new(rows), columns), None));
        }
    };
    Ok((shape, Some(Input::open(path)?)))
}

impl RawRecords {
    /// Appends the next line to `text`; whether there was one.
    fn read_line(&mut self, text: &mut String) -> Result<bool> {
        let Some(input) = &mut self.input else { return Ok(false) };
        let mut bytes = Vec::new();
        let most = MOST_BYTES as u64 + 1;
        let read = input.by_ref().take(most).read_until(b'\n', &mut bytes);
        if read.map_err(|e| Error::io(&self.file, &e))? == 0 {
            return Ok(false);
        }
        self.line += 1;
        if bytes.len() + text.len() > MOST_BYTES {
            let file = self.file.clone();
            return Err(Error::LineTooLong { file, line: self.line, limit: MOST_BYTES });
        }
        let line = String::from_utf8(bytes)
            .map_err(|_| Error::BadUtf8 { file: self.file.clone(), line: self.line })?;
        text.push_str(&line);
        Ok(true)
    }

    fn read(&mut self) -> Result<Option<RawRecord>> {
        loop {
            let record = match self.shape {
                Shape::Parquet(..) => self.row_of_parquet()?,
                _ => self.lines()?,
            };
            if record.is_some() {
                return Ok(record);
            }
            let Some(file) = self.others.pop_front() else { return Ok(None) };
            (self.shape, self.input) = open(&file, self.format)?;
            (self.file, self.line) = (file, 0);
        }
    }

    fn row_of_parquet(&mut self) -> Result<Option<RawRecord>> {
        let Shape::Parquet(rows, columns) = &mut self.shape else { return Ok(None) };
        let Some(row) = rows.next().transpose()? else { return Ok(None) };
        self.row += 1;
        let value = |(column, value): (&Arc<str>, String)| RawValue {
            column: column.clone(),
            row: self.row,
            value,
            is_number: false,
            points: vec![(0, 0)],
        };
        let values = columns.iter().zip(row.values).map(value).collect();
        Ok(Some(RawRecord { line: row.line, text: String::new(), values, is_damaged: false }))
    }

    fn lines(&mut self) -> Result<Option<RawRecord>> {
        let mut text = String::new();
        if !self.read_line(&mut text)? {
            return self.end();
        }
        let line = self.line;
        let skipped = if line == 1 && text.starts_with(MARK) { MARK.len() } else { 0 };
        let body = text.strip_suffix('\n').unwrap_or(&text);
        let body = skipped..body.strip_suffix('\r').unwrap_or(body).len();
        let mut is_damaged = false;
        let values = match &mut self.shape {
            Shape::Text(column) => match text[body.clone()].trim().is_empty() {
                true => Vec::new(),
                false => {
                    self.row += 1;
                    vec![plain(&text, body, column.clone(), self.row)]
                }
            },
            Shape::Tsv(columns) if columns.is_empty() => {
                let names: Vec<String> = text[body].split('\t').map(str::to_owned).collect();
                header::unrepeated(&self.file, &names)?;
                *columns = names.iter().map(|name| name.as_str().into()).collect();
                Vec::new()
            }
            Shape::Tsv(_) if body.is_empty() => Vec::new(),
            Shape::Tsv(columns) => {
                self.row += 1;
                let values = fields(&text, body, columns, self.row);
                is_damaged = values.len() != columns.len();
                values
            }
            Shape::Json(json) => match json.values(&text[..body.end], skipped, &mut self.row) {
                Ok(values) => values,
                Err(reason) if json.is_array() => {
                    return Err(Error::BadJson { file: self.file.clone(), line, reason });
                }
                Err(_) => return Ok(Some(self.damaged(line, text, skipped))),
            },
            Shape::Csv(_) | Shape::Parquet(..) => return self.csv(line, text, skipped).map(Some),
        };
        Ok(Some(RawRecord { line, text, values, is_damaged }))
    }

    /// The record that begins in this line, with the lines over which its quoted fields extend.
    fn csv(&mut self, line: u64, mut text: String, skipped: usize) -> Result<RawRecord> {
        while let Shape::Csv(csv) = &mut self.shape {
            match csv.values(&text, skipped, &mut self.row) {
                Ok(Some((values, is_damaged))) => {
                    return Ok(RawRecord { line, text, values, is_damaged });
                }
                Ok(None) => {}
                Err(problem) if line == 1 => {
                    return Err(Error::BadQuote { file: self.file.clone(), line, problem });
                }
                Err(_) => break,
            }
            if !self.read_line(&mut text)? {
                let problem = "a quoted field is never closed";
                return Err(Error::BadQuote { file: self.file.clone(), line, problem });
            }
        }
        Ok(self.damaged(line, text, skipped))
    }

    /// A row whose values cannot be told apart.
    fn damaged(&mut self, line: u64, text: String, skipped: usize) -> RawRecord {
        self.row += 1;
        let value = plain(&text, skipped..text.len(), "row".into(), self.row);
        RawRecord { line, text, values: vec![value], is_damaged: true }
    }

    fn end(&mut self) -> Result<Option<RawRecord>> {
        match &self.shape {
            _ if self.line == 0 => Err(Error::EmptyFile { file: self.file.clone() }),
            Shape::Json(json) if !json.is_closed() => {
                let problem = "the array is never closed";
                Err(Error::BadArray { file: self.file.clone(), line: self.line, problem })
            }
            _ => Ok(None),
        }
    }
}

impl Iterator for RawRecords {
    type Item = Result<RawRecord>;

    fn next(&mut self) -> Option<Result<RawRecord>> {
        self.read().transpose()
    }
}

fn plain(text: &str, range: Range<usize>, column: Arc<str>, row: u64) -> RawValue {
    let points = vec![(0, range.start)];
    RawValue { column, row, value: text[range].to_owned(), is_number: false, points }
}

/// The column of a field by its position; rows may have more fields than the header.
fn column(columns: &[Arc<str>], index: usize) -> Arc<str> {
    columns.get(index).cloned().unwrap_or_else(|| format!("field {}", index + 1).into())
}

fn fields(text: &str, body: Range<usize>, columns: &[Arc<str>], row: u64) -> Vec<RawValue> {
    let mut values = Vec::new();
    let mut start = body.start;
    for (index, field) in text[body].split('\t').enumerate() {
        let range = start..start + field.len();
        start = range.end + 1;
        values.push(plain(text, range, column(columns, index), row));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records of a file with these bytes, which must be the file again.
    fn records(name: &str, bytes: &str) -> Result<Vec<RawRecord>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        let format = super::super::super::format_of(&file, None)?;
        let records: Vec<RawRecord> = raw_records(&file, format)?.collect::<Result<_>>()?;
        let together: String = records.iter().map(|record| record.text.as_str()).collect();
        assert_eq!(together, bytes);
        for value in records.iter().flat_map(|record| &record.values) {
            assert!(!value.column.is_empty());
        }
        Ok(records)
    }

    /// Column, row, value, and how the value is written.
    fn values(name: &str, bytes: &str) -> Vec<(String, u64, String, String)> {
        let records = records(name, bytes).unwrap();
        let of = |record: &RawRecord| -> Vec<_> {
            let value = |value: &RawValue| {
                let raw = record.text[value.raw(0..value.value.len())].to_owned();
                (value.column.to_string(), value.row, value.value.clone(), raw)
            };
            record.values.iter().map(value).collect()
        };
        records.iter().flat_map(of).collect()
    }

    fn expected(rows: &[(&str, u64, &str, &str)]) -> Vec<(String, u64, String, String)> {
        let owned = |&(a, b, c, d): &(&str, u64, &str, &str)| (a.into(), b, c.into(), d.into());
        rows.iter().map(owned).collect()
    }

    #[test]
    fn values_are_found_where_they_are_written() {
        assert_eq!(
            values("a.csv", "\u{feff}a,\"b\"\r\n1,\"x \"\"y\"\"\r\nz\"\r\n\r\n,2,3\n"),
            expected(&[
                ("a", 1, "1", "1"),
                ("b", 1, "x \"y\"\r\nz", "x \"\"y\"\"\r\nz"),
                ("a", 2, "", ""),
                ("b", 2, "2", "2"),
                ("field 3", 2, "3", "3"),
            ])
        );
        assert_eq!(
            values("a.tsv", "a\tb\n\"1\t2\r\n\n3\n"),
            expected(&[("a", 1, "\"1", "\"1"), ("b", 1, "2", "2"), ("a", 2, "3", "3")])
        );
        assert_eq!(
            values("a.txt", "one\n \ntwo"),
            expected(&[("text", 1, "one", "one"), ("text", 2, "two", "two")])
        );
        let lines = "{\"a\": \"x\\u00e9\\n\\ud83d\\ude00y\", \"b\":{\"c\":[1.5,\"z\"]},\"d\":null}\n\n\
                     {\"a\":\"\"}\n";
        let wanted = expected(&[
            ("a", 1, "xé\n😀y", "x\\u00e9\\n\\ud83d\\ude00y"),
            ("b.c", 1, "1.5", "1.5"),
            ("b.c", 1, "z", "z"),
            ("a", 2, "", ""),
        ]);
        assert_eq!(values("a.jsonl", lines), wanted);
        let array = "[\n  {\"a\":\n \"x\"},\n {\"a\": 7}\n]\n";
        let wanted = expected(&[("a", 1, "x", "x"), ("a", 2, "7", "7")]);
        assert_eq!(values("a.json", array), wanted);
    }

    #[test]
    fn a_range_within_a_value_is_found_behind_escapes() {
        let records = records("a.jsonl", "{\"a\":\"\\u00e9\\\"ab\\tc\"}\n").unwrap();
        let value = &records[0].values[0];
        assert_eq!(value.value, "é\"ab\tc");
        let raw = |range| &records[0].text[value.raw(range)];
        assert_eq!((raw(3..5), raw(0..2), raw(2..3), raw(5..7)), ("ab", "\\u00e9", "\\\"", "\\tc"));
    }

    #[test]
    fn damaged_files_are_refused_with_their_line() {
        let problem = |name: &str, text: &str| records(name, text).unwrap_err().to_string();
        assert!(problem("a.csv", "a\n\"b\n").contains(":2: a quoted field is never closed"));
        assert!(problem("a.json", "[{\"a\":\"b\"}\n").contains("never closed"));
        assert!(problem("a.jsonl", "").contains("holds no rows"));
    }

    #[test]
    fn damaged_rows_are_kept_and_marked() {
        let damaged = |name: &str, bytes: &str| -> Vec<(String, bool)> {
            let records = records(name, bytes).unwrap();
            let of = |record: RawRecord| (record.values[0].value.clone(), record.is_damaged);
            records.into_iter().filter(|record| !record.values.is_empty()).map(of).collect()
        };
        let rows = |rows: &[(&str, bool)]| -> Vec<(String, bool)> {
            rows.iter().map(|(value, is_damaged)| (value.to_string(), *is_damaged)).collect()
        };
        let csv = damaged("a.csv", "a,b\n1,2\n3\n\"4\"x,5\n6,7\n");
        assert_eq!(csv, rows(&[("1", false), ("3", true), ("\"4\"x,5\n", true), ("6", false)]));
        let lines = damaged("a.jsonl", "{\"a\":1}\n{\"a\":\n[2]\n{\"a\":3}\n");
        let expected = [("1", false), ("{\"a\":\n", true), ("[2]\n", true), ("3", false)];
        assert_eq!(lines, rows(&expected));
    }
}
