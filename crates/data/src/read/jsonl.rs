//! JSON objects: one per line (JSON Lines), or the elements of a single array.

use super::super::error::{Error, Result};
use super::array::{Elements, begins_array};
use super::lines::Lines;
use super::memory;
use super::{Meter, Row};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) struct Jsonl {
    objects: Objects,
    columns: Vec<String>,
    /// Whether the first object has been read: a column missing from it is missing from the file.
    begun: bool,
    /// Whether a nested value is returned as JSON text instead of being rejected.
    nested: bool,
}

impl Jsonl {
    /// Opens a file; `nested` returns arrays and objects as JSON text.
    pub fn open(path: &Path, columns: &[&str], nested: bool) -> Result<Jsonl> {
        let columns = columns.iter().map(|column| column.to_string()).collect();
        Ok(Jsonl { objects: Objects::open(path)?, columns, begun: false, nested })
    }

    pub fn meter(&self) -> Meter {
        self.objects.meter().clone()
    }

    fn row(&mut self) -> Result<Option<Row>> {
        let Some((line, object)) = self.objects.next()? else { return Ok(None) };
        let values: Result<Vec<String>> =
            self.columns.iter().map(|column| self.value(line, &object, column)).collect();
        self.begun = true;
        Ok(Some(Row { line, values: values? }))
    }

    fn value(&self, line: u64, object: &Map<String, Value>, column: &str) -> Result<String> {
        let file = || self.objects.file().to_path_buf();
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
    match Objects::open(path)?.next()? {
        None => Err(Error::EmptyFile { file: path.into() }),
        Some((_, object)) => Ok(object.into_iter().map(|(column, _)| column).collect()),
    }
}

/// The columns of the first object, with those of objects within it as dotted paths.
pub(super) fn nested_columns(path: &Path) -> Result<Vec<String>> {
    match Objects::open(path)?.next()? {
        None => Err(Error::EmptyFile { file: path.into() }),
        Some((_, object)) => {
            let mut columns = Vec::new();
            add_columns(&object, "", DEPTH, &mut columns);
            Ok(columns)
        }
    }
}

/// How deep objects within objects are listed.
const DEPTH: usize = 4;

fn add_columns(object: &Map<String, Value>, before: &str, depth: usize, columns: &mut Vec<String>) {
    for (key, value) in object {
        let name = format!("{before}{key}");
        match value {
            Value::Object(inner) if depth > 1 && !inner.is_empty() => {
                add_columns(inner, &format!("{name}."), depth - 1, columns);
            }
            _ => columns.push(name),
        }
    }
}

/// The column of that name, or otherwise the nested value at that dotted path.
fn find<'a>(object: &'a Map<String, Value>, column: &str) -> Option<&'a Value> {
    object.get(column).or_else(|| {
        let (outer, inner) = column.split_once('.')?;
        find(object.get(outer)?.as_object()?, inner)
    })
}

/// The objects of a file.
enum Objects {
    Lines { lines: Lines, text: String },
    Array { elements: Elements, text: Vec<u8> },
    Memory { file: PathBuf, rows: Arc<Vec<Map<String, Value>>>, done: usize, meter: Meter },
}

impl Objects {
    fn open(path: &Path) -> Result<Objects> {
        if let Some(rows) = memory::rows(path) {
            let meter = Meter::new(rows.len() as u64);
            return Ok(Objects::Memory { file: path.to_owned(), rows, done: 0, meter });
        }
        Ok(match begins_array(path)? {
            true => Objects::Array { elements: Elements::open(path)?, text: Vec::new() },
            false => Objects::Lines { lines: Lines::open(path)?, text: String::new() },
        })
    }

    fn file(&self) -> &Path {
        match self {
            Objects::Lines { lines, .. } => lines.file(),
            Objects::Array { elements, .. } => elements.file(),
            Objects::Memory { file, .. } => file,
        }
    }

    fn meter(&self) -> &Meter {
        match self {
            Objects::Lines { lines, .. } => lines.meter(),
            Objects::Array { elements, .. } => elements.meter(),
            Objects::Memory { meter, .. } => meter,
        }
    }

    /// The next object, and the line on which it starts.
    fn next(&mut self) -> Result<Option<(u64, Map<String, Value>)>> {
        match self {
            Objects::Lines { lines, text } => {
                while let Some(line) = lines.read(text)? {
                    if !text.trim().is_empty() {
                        return object(lines.file(), line.number, text, "line").map(Some);
                    }
                }
                Ok(None)
            }
            Objects::Array { elements, text } => {
                let Some(line) = elements.read(text)? else { return Ok(None) };
                let file = elements.file();
                let text = std::str::from_utf8(text)
                    .map_err(|_| Error::BadUtf8 { file: file.into(), line })?;
                object(file, line, text, "element").map(Some)
            }
            Objects::Memory { rows, done, meter, .. } => {
                let Some(row) = rows.get(*done) else { return Ok(None) };
                *done += 1;
                meter.add(1);
                Ok(Some((*done as u64, row.clone())))
            }
        }
    }
}

/// Parses a line or an element, which must be a JSON object.
fn object(file: &Path, line: u64, text: &str, what: &str) -> Result<(u64, Map<String, Value>)> {
    let bad = |reason| Error::BadJson { file: file.into(), line, reason };
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok((line, object)),
        Ok(_) => Err(bad(format!("the {what} is not an object"))),
        // The parser sees only this text, so the line number in its message is dropped.
        Err(error) => {
            let at = format!(" at line {} column {}", error.line(), error.column());
            let here = format!(" at column {}", error.column());
            let here = if error.line() == 1 { here.as_str() } else { "" };
            Err(bad(error.to_string().replace(&at, here)))
        }
    }
}
