//! Python objects and JSON values.

use crate::errors::user_error;
use pyo3::exceptions::{PyAttributeError, PyUnicodeEncodeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde::Serialize;
use serde_json::{Map, Number, Value};

/// The reason why a Python object cannot be converted.
pub enum Unusable {
    /// Its type is neither text, number nor Boolean, nor composed of these.
    Type(String),
    /// It is a number or a text that JSON cannot represent.
    Value(&'static str),
    Python(PyErr),
}

impl From<PyErr> for Unusable {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl Unusable {
    /// The exception for a value with the name `name`.
    pub fn named(self, name: &str) -> PyErr {
        match self {
            Self::Type(of) => user_error(format!(
                "{name} is of type {of}; use text, a number, a boolean, or lists and dicts of these"
            )),
            Self::Value(problem) => user_error(format!("{name} {problem}")),
            Self::Python(error) => error,
        }
    }
}

/// Maximum nesting depth of lists and dicts.
const DEEPEST: usize = 64;

/// Converts a Python object to JSON. Missing values of any library (`None`, NaN, `pandas.NA`)
/// become null.
pub fn to_json(object: &Bound<'_, PyAny>) -> Result<Value, Unusable> {
    within(object, 0)
}

fn within(object: &Bound<'_, PyAny>, depth: usize) -> Result<Value, Unusable> {
    if depth > DEEPEST {
        return Err(Unusable::Value("is nested too deeply"));
    }
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(text) = object.cast::<PyString>() {
        return match text.to_cow() {
            Ok(text) => Ok(Value::String(text.into_owned())),
            Err(error) if error.is_instance_of::<PyUnicodeEncodeError>(object.py()) => {
                Err(Unusable::Value("has a lone surrogate, which is no text"))
            }
            Err(error) => Err(error.into()),
        };
    }
    if let Ok(truth) = object.cast::<PyBool>() {
        return Ok(Value::Bool(truth.is_true()));
    }
    if object.is_instance_of::<PyInt>() {
        let number = object.extract::<i64>().map(Number::from);
        let number = number.or_else(|_| object.extract::<u64>().map(Number::from));
        return number
            .map(Value::Number)
            .map_err(|_| Unusable::Value("is an integer of more than 64 bits; use text"));
    }
    if object.is_instance_of::<PyFloat>() {
        let number: f64 = object.extract()?;
        return match Number::from_f64(number) {
            Some(number) => Ok(Value::Number(number)),
            None if number.is_nan() => Ok(Value::Null),
            None => Err(Unusable::Value("is infinite")),
        };
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        let mut map = Map::new();
        for (key, value) in dict.iter() {
            let Ok(key) = key.extract::<String>() else {
                return Err(Unusable::Value("has a key that is not text"));
            };
            map.insert(key, within(&value, depth + 1)?);
        }
        return Ok(Value::Object(map));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let elements = object.try_iter()?.map(|element| within(&element?, depth + 1));
        return Ok(Value::Array(elements.collect::<Result<_, _>>()?));
    }
    let of = object.get_type().name()?.to_string();
    if ["NAType", "NaTType"].contains(&of.as_str()) {
        return Ok(Value::Null);
    }
    if let Ok(path) = object.call_method0("__fspath__") {
        return within(&path, depth + 1);
    }
    // NumPy scalars and arrays.
    for name in ["item", "tolist"] {
        match object.call_method0(name) {
            Ok(inner) if !inner.is(object) => return within(&inner, depth + 1),
            Err(error) if error.is_instance_of::<PyAttributeError>(object.py()) => break,
            _ => {}
        }
    }
    Err(Unusable::Type(of))
}

/// Converts a JSON value to a Python object.
pub fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number.into_pyobject(py)?.into_any(),
            (_, Some(number)) => number.into_pyobject(py)?.into_any(),
            _ => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(to_python(py, value)?)?;
            }
            list.into_any()
        }
        Value::Object(map) => {
            let dict = PyDict::new(py);
            for (key, value) in map {
                dict.set_item(key, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

/// Converts any serializable value to a Python object. Non-finite numbers become None.
pub fn python_of<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let value = serde_json::to_value(value).map_err(|e| user_error(e.to_string()))?;
    to_python(py, &value)
}

/// A value in run-file notation.
pub fn to_toml(value: &Value) -> Option<String> {
    toml::Value::try_from(value).ok().map(|value| value.to_string())
}
