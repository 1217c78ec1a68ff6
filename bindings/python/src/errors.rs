//! Errors: the command line's error message as a Python exception.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use undertone_cli::failure::Failure;

create_exception!(undertone, UndertoneError, PyException, "The engine could not do its work.");
create_exception!(undertone, UserError, UndertoneError, "An argument or its data cannot be used.");

/// The exception for a failure: errors with exit code 2 on the command line are for the user to
/// fix.
pub fn raised(failure: impl Into<Failure>) -> PyErr {
    let failure = failure.into();
    let sentence = undertone_run::printable_line(&failure.to_string()).into_owned();
    match failure.code() {
        2 => UserError::new_err(sentence),
        _ => UndertoneError::new_err(sentence),
    }
}

/// The exception for an invalid argument.
pub fn user_error(sentence: impl Into<String>) -> PyErr {
    UserError::new_err(sentence.into())
}

/// The same exception, with the path of rows in memory replaced by their name.
pub fn naming_rows(py: Python, error: PyErr, names: &[(String, &str)]) -> PyErr {
    let mut text = error.value(py).to_string();
    if !names.iter().any(|(path, _)| text.contains(path)) {
        return error;
    }
    for (path, name) in names {
        text = text.replace(path, name);
    }
    match error.is_instance_of::<UserError>(py) {
        true => UserError::new_err(text),
        false => UndertoneError::new_err(text),
    }
}
