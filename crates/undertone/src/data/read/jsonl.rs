//! JSON Lines: one JSON object a line.

use super::super::error::{Error, Result};
use super::lines::Lines;
use super::{Meter, Row};
use serde_json::{Map, Value};
use std::path::Path;

pub(super) struct Jsonl {
    lines: Lines,
    text: String,
    columns: Vec<String>,
    /// Whether the first object was read: a column missing from it is missing from the file.
    begun: bool,
    /// Whether a nested value is returned as its JSON text instead of refused.
    nested: bool,
}

impl Jsonl {
    pub fn open(path: &Path, columns: &[&str]) -> Result<Jsonl> {
        let columns = columns.iter().map(|column| column.to_string()).collect();
        Ok(Jsonl {
            lines: Lines::open(path)?,
            text: String::new(),
            columns,
            begun: false,
            nested: false,
        })
    }

    /// Returns arrays and objects as their JSON text.
    pub fn with_nested(self) -> Jsonl {
        Jsonl { nested: true, ..self }
    }

    pub fn meter(&self) -> Meter {
        self.lines.meter().clone()
    }

    fn row(&mut self) -> Result<Option<Row>> {
        let Some((line, object)) = object(&mut self.lines, &mut self.text)? else {
            return Ok(None);
        };
        let values: Result<Vec<String>> =
            self.columns.iter().map(|column| self.value(line, &object, column)).collect();
        self.begun = true;
        Ok(Some(Row { line, values: values? }))
    }

    fn value(&self, line: u64, object: &Map<String, Value>, column: &str) -> Result<String> {
        let file = || self.lines.file().to_path_buf();
        match find(object, column) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            Some(Value::Bool(truth)) => Ok(truth.to_string()),
            Some(nested @ (Value::Object(_) | Value::Array(_))) if self.nested => {
                Ok(nested.to_string())
            }
            Some(Value::Object(_) | Value::Array(_)) => Err(Error::BadJson {
                file: file(),
                line,
                reason: format!("column {column:?} is nested"),
            }),
            None if !self.begun => Err(Error::MissingColumn {
                file: file(),
                column: column.into(),
                available: object.keys().cloned().collect(),
            }),
            None | Some(Value::Null) => {
                Err(Error::MissingValue { file: file(), line, column: column.into() })
            }
        }
    }
}

impl Iterator for Jsonl {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        self.row().transpose()
    }
}

pub(super) fn columns(path: &Path) -> Result<Vec<String>> {
    match object(&mut Lines::open(path)?, &mut String::new())? {
        None => Err(Error::EmptyFile { file: path.into() }),
        Some((_, object)) => Ok(object.into_iter().map(|(column, _)| column).collect()),
    }
}

/// The column of that name, or else the nested one at that dotted path.
fn find<'a>(object: &'a Map<String, Value>, column: &str) -> Option<&'a Value> {
    object.get(column).or_else(|| {
        let (outer, inner) = column.split_once('.')?;
        find(object.get(outer)?.as_object()?, inner)
    })
}

/// The next line that is not blank, which must be a JSON object.
fn object(lines: &mut Lines, text: &mut String) -> Result<Option<(u64, Map<String, Value>)>> {
    while let Some(line) = lines.read(text)? {
        if text.trim().is_empty() {
            continue;
        }
        let bad = |reason| Error::BadJson { file: lines.file().into(), line: line.number, reason };
        return match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Ok(Some((line.number, object))),
            Ok(_) => Err(bad("the line is not an object".to_owned())),
            // The parser sees one line only, so the line number in its message is dropped.
            Err(error) => Err(bad(error.to_string().replace(" at line 1 column ", " at column "))),
        };
    }
    Ok(None)
}
