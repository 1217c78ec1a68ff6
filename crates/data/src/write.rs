//! Writes rows as CSV, JSON Lines or Parquet, such that this crate reads the same rows back.

use super::error::{Error, Result};
use super::format::Format;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use serde_json::{Map, Value};
use std::io::{Result as Io, Write};
use std::sync::Arc;

/// Number of rows per row group of a Parquet file.
const GROUP: usize = 10_000;

/// Writes rows, each with a value for every column, in a format that can hold any text.
pub fn write_rows(
    out: &mut (impl Write + Send),
    format: Format,
    columns: &[String],
    rows: &[Vec<String>],
) -> Io<()> {
    match format {
        Format::Csv => write_csv(out, columns, rows),
        Format::Jsonl => write_jsonl(out, columns, rows),
        Format::Parquet => write_parquet(out, columns, rows).map_err(std::io::Error::other),
        _ => Err(std::io::Error::other("only CSV, JSON Lines and Parquet can be written")),
    }
}

/// A field of a CSV file: quoted if it needs to be, or is empty, since a line must not be blank.
fn field(value: &str) -> String {
    let plain = !value.contains(['"', ',', ';', '\n', '\r']) && value.trim() == value;
    match plain && !value.is_empty() {
        true => value.to_owned(),
        false => format!("\"{}\"", value.replace('"', "\"\"")),
    }
}

fn write_csv(out: &mut impl Write, columns: &[String], rows: &[Vec<String>]) -> Io<()> {
    for row in std::iter::once(columns).chain(rows.iter().map(Vec::as_slice)) {
        let fields: Vec<String> = row.iter().map(|value| field(value)).collect();
        writeln!(out, "{}", fields.join(","))?;
    }
    Ok(())
}

fn write_jsonl(out: &mut impl Write, columns: &[String], rows: &[Vec<String>]) -> Io<()> {
    for row in rows {
        let pairs = columns.iter().zip(row);
        let object: Map<String, Value> =
            pairs.map(|(column, value)| (column.clone(), Value::from(value.as_str()))).collect();
        writeln!(out, "{}", Value::Object(object))?;
    }
    Ok(())
}

fn write_parquet(
    out: &mut (impl Write + Send),
    columns: &[String],
    rows: &[Vec<String>],
) -> std::result::Result<(), ParquetError> {
    let field = |column: &String| {
        Type::primitive_type_builder(column, Physical::BYTE_ARRAY)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::String))
            .build()
            .map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<std::result::Result<_, _>>()?;
    let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build()?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    for rows in rows.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        for column in 0..columns.len() {
            let Some(mut written) = group.next_column()? else { break };
            let text = |row: &Vec<String>| ByteArray::from(row[column].as_str());
            let values: Vec<ByteArray> = rows.iter().map(text).collect();
            written.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            written.close()?;
        }
        group.close()?;
    }
    writer.close().map(drop)
}

/// Rejects columns that a file cannot have: none, or a name twice.
pub fn check_columns(columns: &[String]) -> Result<()> {
    let twice = columns.iter().enumerate().find(|(at, name)| columns[..*at].contains(name));
    match (twice, columns.is_empty()) {
        (Some((_, name)), _) => {
            Err(Error::invalid("a column", format!("{name:?} twice"), "named once"))
        }
        (None, true) => Err(Error::invalid("the number of columns", 0, "at least 1")),
        (None, false) => Ok(()),
    }
}
