//! Comma-separated values, quoted as in RFC 4180; also with semicolons or tabs instead of commas.
//!
//! Implemented here instead of taken from a library so that nothing in the data is guessed:
//! unbalanced quotes are an error that names the row's first line, where libraries read the rest of
//! the file into one field, and the length of a row is bounded. A test checks that it agrees with
//! the `csv` crate on well-formed files.

use super::super::error::{Error, Result};
use super::lines::Lines;
use super::{Meter, Row, header};
use std::path::Path;

pub(super) struct Csv {
    records: Records,
    /// Number of fields in the header.
    width: usize,
    /// Indices of the requested columns.
    indices: Vec<usize>,
}

/// The separator between fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Separator {
    /// A comma, or a semicolon if the header contains one and no comma outside quotes, as
    /// spreadsheets write in locales where the comma is the decimal separator.
    CommaOrSemicolon,
    Tab,
}

impl Separator {
    /// The character that separates fields, given this header.
    pub(super) fn of_header(self, header: &str) -> char {
        if self == Separator::Tab {
            return '\t';
        }
        let (mut quoted, mut semicolon) = (false, false);
        for character in header.chars() {
            match character {
                '"' => quoted = !quoted,
                ',' if !quoted => return ',',
                ';' if !quoted => semicolon = true,
                _ => {}
            }
        }
        if semicolon { ';' } else { ',' }
    }
}

impl Csv {
    pub fn open(path: &Path, columns: &[&str], separator: Separator) -> Result<Csv> {
        let (records, header) = open(path, separator)?;
        let indices = header::indices(path, &header, columns)?;
        Ok(Csv { records, width: header.len(), indices })
    }

    pub fn meter(&self) -> Meter {
        self.records.lines.meter().clone()
    }

    fn row(&mut self) -> Result<Option<Row>> {
        let Some((line, fields)) = self.records.next()? else { return Ok(None) };
        if fields.len() != self.width {
            let file = self.records.lines.file().into();
            return Err(Error::TornRow { file, line, expected: self.width, found: fields.len() });
        }
        let values = self.indices.iter().map(|&index| fields[index].clone()).collect();
        Ok(Some(Row { line, values }))
    }
}

impl Iterator for Csv {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        self.row().transpose()
    }
}

pub(super) fn columns(path: &Path, separator: Separator) -> Result<Vec<String>> {
    open(path, separator).map(|(_, header)| header)
}

fn open(path: &Path, separator: Separator) -> Result<(Records, Vec<String>)> {
    let mut records = Records {
        lines: Lines::open(path)?,
        stated: separator,
        separator: None,
        text: String::new(),
        at: 0,
        bytes: 0,
    };
    match records.next()? {
        None => Err(Error::EmptyFile { file: path.into() }),
        Some((_, header)) => Ok((records, header)),
    }
}

/// CSV records, each spanning one line, or several lines joined by a quoted field.
struct Records {
    lines: Lines,
    stated: Separator,
    /// Determined from the header.
    separator: Option<char>,
    /// The current line, and the position in it.
    text: String,
    at: usize,
    /// Number of bytes of the record so far, over all its lines.
    bytes: usize,
}

impl Records {
    /// The next record and its first line; blank lines are skipped.
    fn next(&mut self) -> Result<Option<(u64, Vec<String>)>> {
        loop {
            let Some(line) = self.lines.read(&mut self.text)? else { return Ok(None) };
            (self.at, self.bytes) = (0, self.text.len());
            if !self.text.is_empty() {
                self.separator.get_or_insert_with(|| self.stated.of_header(&self.text));
                return self
                    .fields(line.number, line.ending)
                    .map(|fields| Some((line.number, fields)));
            }
        }
    }

    fn fields(&mut self, start: u64, ending: &'static str) -> Result<Vec<String>> {
        let (mut fields, mut ending) = (Vec::new(), ending);
        let separator = self.separator.unwrap_or(',');
        loop {
            let field = match self.rest().starts_with('"') {
                true => self.quoted(start, &mut ending)?,
                false => self.plain(separator),
            };
            fields.push(field);
            match self.rest().chars().next() {
                None => return Ok(fields),
                Some(next) if next == separator => self.at += 1,
                Some(_) => return Err(self.bad_quote(start, "text follows a closing quote")),
            }
        }
    }

    /// Reads an unquoted field; quotes inside it are ordinary characters.
    fn plain(&mut self, separator: char) -> String {
        let rest = self.rest();
        let field = rest[..rest.find(separator).unwrap_or(rest.len())].to_owned();
        self.at += field.len();
        field
    }

    /// Reads a quoted field, across as many lines as needed to reach its closing quote.
    fn quoted(&mut self, start: u64, ending: &mut &'static str) -> Result<String> {
        let mut field = String::new();
        self.at += 1;
        loop {
            let Some(quote) = self.rest().find('"') else {
                field.push_str(self.rest());
                field.push_str(ending);
                let Some(line) = self.lines.read(&mut self.text)? else {
                    return Err(self.bad_quote(start, "a quoted field is never closed"));
                };
                (self.at, *ending) = (0, line.ending);
                self.bytes += self.text.len() + line.ending.len();
                if self.bytes > self.lines.most_bytes() {
                    return Err(self.lines.too_long(start));
                }
                continue;
            };
            field.push_str(&self.rest()[..quote]);
            self.at += quote + 1;
            if !self.rest().starts_with('"') {
                return Ok(field);
            }
            field.push('"');
            self.at += 1;
        }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn bad_quote(&self, line: u64, problem: &'static str) -> Error {
        Error::BadQuote { file: self.lines.file().into(), line, problem }
    }
}
