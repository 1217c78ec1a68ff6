//! Tables through the Arrow C stream interface, which pandas, polars, pyarrow and others export.

use crate::errors::user_error;
use crate::rows::{Row, wanted};
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatchReader};
use arrow_schema::DataType;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use serde_json::{Map, Number, Value};

/// The stream of an object with `__arrow_c_stream__`.
pub fn reader(data: &Bound<'_, PyAny>, name: &str) -> PyResult<RecordBatchStreamReader> {
    let capsule = data.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>().map_err(PyErr::from)?;
    let stream = import(capsule)?;
    RecordBatchStreamReader::try_new(stream)
        .map_err(|e| user_error(format!("{name} could not be read as Arrow data: {e}")))
}

/// Takes the stream out of its capsule.
#[allow(unsafe_code)]
fn import(capsule: &Bound<'_, PyCapsule>) -> PyResult<FFI_ArrowArrayStream> {
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: by the Arrow PyCapsule interface, a capsule of this name points to a valid
    // ArrowArrayStream. `from_raw` moves it out and leaves a released stream behind, which the
    // capsule's destructor ignores.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr().cast()) })
}

/// The required columns of all batches, by row.
pub fn rows(
    mut reader: RecordBatchStreamReader,
    name: &str,
    needed: &[String],
) -> PyResult<Vec<Row>> {
    let schema = reader.schema();
    let available: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    let columns = wanted(name, needed, &available)?;
    let mut rows = Vec::new();
    for batch in &mut reader {
        let batch = batch
            .map_err(|e| user_error(format!("{name} could not be read as Arrow data: {e}")))?;
        let first = rows.len();
        rows.resize_with(first + batch.num_rows(), Row::new);
        for column in &columns {
            let Some(array) = batch.column_by_name(column) else { continue };
            let values = values(array.as_ref()).map_err(|of| {
                user_error(format!(
                    "column {column:?} of {name} is of type {of}; convert it to text, numbers or \
                     booleans"
                ))
            })?;
            for (row, value) in rows[first..].iter_mut().zip(values) {
                row.insert(column.clone(), value);
            }
        }
    }
    Ok(rows)
}

fn text(value: Option<&str>) -> Value {
    value.map_or(Value::Null, Value::from)
}

/// A number as written in a JSON Lines file; NaN, which pandas uses for missing values, becomes
/// null.
fn float(value: Option<f64>) -> Value {
    value.and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

/// The shortest decimal representation of this `f32`.
fn short_float(value: Option<f32>) -> Value {
    float(value.and_then(|number| format!("{number:?}").parse().ok()))
}

/// The values of an array, or the name of an unsupported type.
fn values(array: &dyn Array) -> Result<Vec<Value>, String> {
    macro_rules! numbers {
        ($of:ty) => {
            array
                .as_primitive::<$of>()
                .iter()
                .map(|value| value.map_or(Value::Null, Value::from))
                .collect()
        };
    }
    Ok(match array.data_type() {
        DataType::Null => vec![Value::Null; array.len()],
        DataType::Utf8 => array.as_string::<i32>().iter().map(text).collect(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().map(text).collect(),
        DataType::Utf8View => array.as_string_view().iter().map(text).collect(),
        DataType::Boolean => {
            array.as_boolean().iter().map(|v| v.map_or(Value::Null, Value::from)).collect()
        }
        DataType::Int8 => numbers!(Int8Type),
        DataType::Int16 => numbers!(Int16Type),
        DataType::Int32 => numbers!(Int32Type),
        DataType::Int64 => numbers!(Int64Type),
        DataType::UInt8 => numbers!(UInt8Type),
        DataType::UInt16 => numbers!(UInt16Type),
        DataType::UInt32 => numbers!(UInt32Type),
        DataType::UInt64 => numbers!(UInt64Type),
        DataType::Float16 => array
            .as_primitive::<Float16Type>()
            .iter()
            .map(|v| short_float(v.map(|v| v.to_f32())))
            .collect(),
        DataType::Float32 => array.as_primitive::<Float32Type>().iter().map(short_float).collect(),
        DataType::Float64 => array.as_primitive::<Float64Type>().iter().map(float).collect(),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            let all = values(dictionary.values().as_ref())?;
            let keys = dictionary.normalized_keys();
            let value = |(i, key): (usize, usize)| match dictionary.keys().is_null(i) {
                true => Value::Null,
                false => all.get(key).cloned().unwrap_or_default(),
            };
            keys.into_iter().enumerate().map(value).collect()
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            lists.iter().map(elements).collect::<Result<_, _>>()?
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            lists.iter().map(elements).collect::<Result<_, _>>()?
        }
        DataType::FixedSizeList(_, _) => {
            array.as_fixed_size_list().iter().map(elements).collect::<Result<_, _>>()?
        }
        DataType::Struct(fields) => {
            let structs = array.as_struct();
            let mut rows = vec![Map::new(); array.len()];
            for (field, column) in fields.iter().zip(structs.columns()) {
                for (row, value) in rows.iter_mut().zip(values(column.as_ref())?) {
                    row.insert(field.name().clone(), value);
                }
            }
            let value = |(i, row)| match structs.is_null(i) {
                true => Value::Null,
                false => Value::Object(row),
            };
            rows.into_iter().enumerate().map(value).collect()
        }
        other => return Err(other.to_string()),
    })
}

fn elements(list: Option<arrow_array::ArrayRef>) -> Result<Value, String> {
    match list {
        None => Ok(Value::Null),
        Some(list) => Ok(Value::Array(values(list.as_ref())?)),
    }
}
