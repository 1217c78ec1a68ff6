//! Parquet, through the library's record interface: top-level columns of text, numbers and
//! booleans.
//!
//! The library trusts the sizes and offsets that a file states, and panics on some invalid ones.
//! The offsets are therefore checked against the file's size first, and any remaining panics become
//! errors.

use super::super::error::{Error, Result};
use super::super::guard::guarded;
use super::lines::MOST_BYTES;
use super::nested;
use super::pages::page_header;
use super::{Meter, Row, header};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row as Record, reader::RowIter};
use parquet::schema::types::Type;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

pub(super) struct Parquet {
    file: PathBuf,
    records: RowIter<'static>,
    columns: Vec<String>,
    row: u64,
    meter: Meter,
}

impl Parquet {
    /// Opens a file; `nested` returns lists and groups as JSON text.
    pub fn open(path: &Path, columns: &[&str], nested: bool) -> Result<Parquet> {
        let reader = open(path)?;
        guarded_read(path, || {
            check_pages(path, &reader, columns)?;
            let metadata = reader.metadata().file_metadata();
            let rows = u64::try_from(metadata.num_rows()).unwrap_or(0);
            let projection = projection(path, metadata.schema(), columns, nested)?;
            let records = RowIter::from_file_into(Box::new(reader)).project(Some(projection));
            Ok(Parquet {
                file: path.into(),
                records: records.map_err(|e| broken(path, &e))?,
                columns: columns.iter().map(|column| column.to_string()).collect(),
                row: 0,
                meter: Meter::new(rows),
            })
        })
    }

    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }

    fn row(&mut self) -> Result<Option<Row>> {
        let next = guarded_read(&self.file, || Ok(self.records.next()))?;
        let Some(record) = next else { return Ok(None) };
        self.row += 1;
        self.meter.add(1);
        let record = record.map_err(|error| match error.to_string().contains("as String") {
            // The library's message would contain the bytes of the text.
            true => Error::BadUtf8 { file: self.file.clone(), line: self.row },
            false => broken(&self.file, &error),
        })?;
        let values: Result<Vec<String>> =
            self.columns.iter().map(|column| self.value(&record, column)).collect();
        Ok(Some(Row { line: self.row, values: values? }))
    }

    fn value(&self, record: &Record, column: &str) -> Result<String> {
        let missing = || Error::MissingValue {
            file: self.file.clone(),
            line: self.row,
            column: column.into(),
        };
        let field = record.get_column_iter().find(|(name, _)| *name == column);
        let field = field.ok_or_else(missing)?.1;
        if matches!(field, Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_)) {
            // Columns of these types are read only if requested as JSON.
            return nested::json(field).map(|value| value.to_string()).ok_or_else(|| {
                unreadable(&self.file, format!("column {column:?} has values of another type"))
            });
        }
        Ok(match field {
            Field::Null => return Err(missing()),
            Field::Str(text) => text.clone(),
            Field::Bytes(bytes) => String::from_utf8(bytes.data().to_vec())
                .map_err(|_| Error::BadUtf8 { file: self.file.clone(), line: self.row })?,
            Field::Bool(truth) => truth.to_string(),
            Field::Byte(number) => number.to_string(),
            Field::Short(number) => number.to_string(),
            Field::Int(number) => number.to_string(),
            Field::Long(number) => number.to_string(),
            Field::UByte(number) => number.to_string(),
            Field::UShort(number) => number.to_string(),
            Field::UInt(number) => number.to_string(),
            Field::ULong(number) => number.to_string(),
            Field::Float(number) => format!("{number:?}"),
            Field::Double(number) => format!("{number:?}"),
            _ => {
                return Err(unreadable(
                    &self.file,
                    format!("column {column:?} is of another type"),
                ));
            }
        })
    }
}

impl Iterator for Parquet {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        self.row().transpose()
    }
}

pub(super) fn columns(path: &Path) -> Result<Vec<String>> {
    let reader = open(path)?;
    guarded_read(path, || Ok(names(reader.metadata().file_metadata().schema())))
}

fn open(path: &Path) -> Result<SerializedFileReader<File>> {
    let opened =
        undertone_settings::open_regular(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (size, file) = opened.map_err(|e| Error::io(path, &e))?;
    if size == 0 {
        return Err(Error::EmptyFile { file: path.into() });
    }
    guarded_read(path, || {
        let reader = SerializedFileReader::new(file).map_err(|e| broken(path, &e))?;
        let mut chunks = reader.metadata().row_groups().iter().flat_map(|group| group.columns());
        match chunks.all(|chunk| within(chunk, size)) {
            true => Ok(reader),
            false => Err(unreadable(path, "a column lies outside the file".to_owned())),
        }
    })
}

/// Whether a column chunk lies within the file.
fn within(chunk: &ColumnChunkMetaData, size: u64) -> bool {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let end = start.checked_add(chunk.compressed_size());
    start >= 0 && chunk.compressed_size() >= 0 && end.is_some_and(|end| end as u64 <= size)
}

/// Rejects pages of the requested columns that would take more memory than a row is allowed: a page
/// is decompressed as a whole.
fn check_pages(path: &Path, reader: &SerializedFileReader<File>, columns: &[&str]) -> Result<()> {
    let wrong = |problem: &str| unreadable(path, problem.to_owned());
    let file = undertone_settings::open_regular(path).map_err(|e| Error::io(path, &e))?;
    let groups = reader.metadata().row_groups().iter();
    let chunks = groups.flat_map(|group| group.columns()).filter(|chunk| {
        chunk.column_path().parts().first().is_some_and(|name| columns.contains(&name.as_str()))
    });
    for chunk in chunks {
        let (start, length) = chunk.byte_range();
        let (mut at, end) = (start, start.saturating_add(length));
        while at < end {
            let mut bytes = Vec::new();
            let mut part = &file;
            let read = part
                .seek(SeekFrom::Start(at))
                .and_then(|_| part.take(LONGEST_PAGE_HEADER.min(end - at)).read_to_end(&mut bytes));
            read.map_err(|e| Error::io(path, &e))?;
            let header = page_header(&bytes).ok_or_else(|| wrong("a page has a broken header"))?;
            if header.uncompressed > MOST_BYTES as u64 {
                return Err(wrong(&format!(
                    "a page has {} MB, and at most {} MB are read at once",
                    header.uncompressed >> 20,
                    MOST_BYTES >> 20
                )));
            }
            at = at.saturating_add(header.length as u64).saturating_add(header.compressed);
        }
    }
    Ok(())
}

/// Larger than any page header, including statistics.
const LONGEST_PAGE_HEADER: u64 = 1 << 20;

/// The schema of the requested columns, so that no others are read.
fn projection(path: &Path, schema: &Type, columns: &[&str], nests: bool) -> Result<Type> {
    let mut indices = header::indices(path, &names(schema), columns)?;
    indices.sort_unstable();
    indices.dedup();
    let fields: Vec<_> =
        indices.into_iter().map(|index| schema.get_fields()[index].clone()).collect();
    if let Some(nested) = fields.iter().find(|field| !nests && !field.is_primitive()) {
        return Err(unreadable(path, format!("column {:?} is nested", nested.name())));
    }
    Type::group_type_builder(schema.name())
        .with_fields(fields)
        .build()
        .map_err(|e| broken(path, &e))
}

fn names(schema: &Type) -> Vec<String> {
    schema.get_fields().iter().map(|field| field.name().to_owned()).collect()
}

/// Runs `work` and turns a panic into an error about the file.
fn guarded_read<T>(path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    guarded(work).unwrap_or_else(|panic| Err(unreadable(path, panic)))
}

fn broken(path: &Path, error: &ParquetError) -> Error {
    unreadable(path, error.to_string())
}

/// The reason is truncated: the library's messages may quote the file's contents.
fn unreadable(path: &Path, reason: String) -> Error {
    Error::Parquet { file: path.into(), reason: reason.chars().take(120).collect() }
}
