//! Rows held in memory by Python, converted once to the contents of a JSON Lines file.

use crate::arrow;
use crate::errors::{raised, user_error};
use crate::values::{Unusable, to_json};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Map, Value};
use std::path::PathBuf;
use undertone::data::read::MemoryFile;

/// One row, by column name.
pub type Row = Map<String, Value>;

/// Rows in memory. Only the required columns are converted.
#[pyclass(frozen)]
#[derive(Debug)]
pub struct Rows {
    /// The rows' name in messages, such as `data`.
    name: String,
    rows: Vec<Row>,
}

#[pymethods]
impl Rows {
    /// Rows from any object that exports an Arrow C stream.
    #[staticmethod]
    fn from_arrow(
        py: Python,
        name: String,
        data: &Bound<'_, PyAny>,
        columns: Vec<String>,
    ) -> PyResult<Self> {
        let reader = arrow::reader(data, &name)?;
        let rows = py.detach(|| arrow::rows(reader, &name, &columns))?;
        Self { name, rows }.checked(&columns)
    }

    /// Rows from a dict of columns, which must have equal lengths.
    #[staticmethod]
    fn from_columns(
        name: String,
        data: &Bound<'_, PyDict>,
        columns: Vec<String>,
    ) -> PyResult<Self> {
        let mut rows: Vec<Row> = Vec::new();
        let wanted = wanted(&name, &columns, &data.keys().extract::<Vec<String>>()?)?;
        for (number, column) in wanted.iter().enumerate() {
            let Some(values) = data.get_item(column)? else { continue };
            let values: Vec<Bound<'_, PyAny>> = values.try_iter()?.collect::<PyResult<_>>()?;
            if number == 0 {
                rows = vec![Row::new(); values.len()];
            }
            if values.len() != rows.len() {
                return Err(user_error(format!(
                    "the columns of {name} have different lengths: {:?} has {} rows, {column:?} \
                     {}",
                    wanted[0],
                    rows.len(),
                    values.len()
                )));
            }
            for (row, value) in rows.iter_mut().zip(values) {
                put(row, column, to_json(&value), &name, column)?;
            }
        }
        Self { name, rows }.checked(&columns)
    }

    /// Rows from a list of dicts.
    #[staticmethod]
    fn from_dicts(name: String, data: &Bound<'_, PyList>, columns: Vec<String>) -> PyResult<Self> {
        let mut rows = Vec::with_capacity(data.len());
        let mut roots: Vec<String> = Vec::new();
        for (number, object) in data.iter().enumerate() {
            let Ok(object) = object.cast::<PyDict>() else {
                return Err(user_error(format!(
                    "row {number} of {name} is of type {}; each row must be a dict",
                    object.get_type().name()?
                )));
            };
            if number == 0 {
                roots = wanted(&name, &columns, &object.keys().extract::<Vec<String>>()?)?;
            }
            let mut row = Row::new();
            for column in &roots {
                if let Some(value) = object.get_item(column)? {
                    put(&mut row, column, to_json(&value), &name, column)?;
                }
            }
            rows.push(row);
        }
        Self { name, rows }.checked(&columns)
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }
}

fn put(
    row: &mut Row,
    key: &str,
    value: Result<Value, Unusable>,
    name: &str,
    column: &str,
) -> PyResult<()> {
    let value = value.map_err(|e| e.named(&format!("a value of column {column:?} of {name}")))?;
    row.insert(key.to_owned(), value);
    Ok(())
}

/// The columns of the data that contain the required ones: a name such as `meta.who` may be a
/// column, or a key of the objects in column `meta`.
pub fn wanted(name: &str, needed: &[String], available: &[String]) -> PyResult<Vec<String>> {
    let has = |column: &str| available.iter().any(|other| other == column);
    let mut wanted: Vec<String> = Vec::new();
    for column in needed {
        let root = column.split('.').next().unwrap_or(column);
        let existing = [column.as_str(), root].into_iter().find(|name| has(name));
        let Some(existing) = existing else {
            return Err(raised(undertone::data::Error::MissingColumn {
                file: PathBuf::from(name),
                column: column.clone(),
                available: available.to_vec(),
            }));
        };
        if !wanted.iter().any(|other| other == existing) {
            wanted.push(existing.to_owned());
        }
    }
    Ok(wanted)
}

/// The type of a cell, for the check that a column has a single type.
fn kind(value: &Value) -> Option<&'static str> {
    match value {
        Value::Null => None,
        Value::Bool(_) => Some("booleans"),
        Value::Number(_) => Some("numbers"),
        Value::String(_) => Some("text"),
        Value::Array(_) => Some("lists"),
        Value::Object(_) => Some("dicts"),
    }
}

impl Rows {
    /// Checks that there are rows, that no required value is missing, and that each column has a
    /// single type.
    fn checked(self, columns: &[String]) -> PyResult<Self> {
        let Self { name, rows } = &self;
        if rows.is_empty() {
            return Err(user_error(format!("{name} has no rows; give at least one")));
        }
        let roots: Vec<&String> = columns.iter().filter(|c| rows[0].contains_key(*c)).collect();
        for column in roots {
            let mut first = None;
            for (number, row) in rows.iter().enumerate() {
                let Some(cell_kind) = row.get(column).and_then(kind) else {
                    return Err(user_error(format!(
                        "row {number} of {name} has no value in column {column:?} (None, NaN or \
                         missing); fill it in or remove the row"
                    )));
                };
                let first = *first.get_or_insert(cell_kind);
                if cell_kind != first {
                    return Err(user_error(format!(
                        "column {column:?} of {name} mixes {first} and {cell_kind} (row {number}); \
                         convert it to one type"
                    )));
                }
            }
        }
        Ok(self)
    }

    /// Places the rows under a path, where all readers find them until the returned value is
    /// dropped.
    pub fn at(&self, path: PathBuf) -> MemoryFile {
        MemoryFile::new(path, self.rows.clone())
    }
}

/// The rows as one JSON array.
#[pyfunction]
pub fn rows_as_json(rows: &Rows) -> PyResult<String> {
    serde_json::to_string(&rows.rows).map_err(|e| user_error(e.to_string()))
}
