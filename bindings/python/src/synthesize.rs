//! `synthesize`: the same as `undertone synthesize`.

use crate::errors::{naming_rows, raised, user_error};
use crate::events;
use crate::model::in_memory;
use crate::process::{Turn, interruptible};
use crate::rows::Rows;
use crate::train::{InMemory, Traces, changes, misread};
use crate::values::to_python;
use clap::Parser;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use undertone::train::TrainingEvent;
use undertone_cli::failure::Failure;
use undertone_cli::synthesize::{Progress, Synthesize};
use undertone_run::RunPaths;
use undertone_terminal::stop::Stop;

/// The arguments of the verb, parsed as on the command line.
#[derive(Parser)]
#[command(allow_negative_numbers = true)]
struct SynthesizeOnly {
    #[command(flatten)]
    synthesize: Synthesize,
}

/// Completes the synthetic rows in the folder `out` and returns what the command line prints with
/// `--json`. `words` are flags, `keys` those of the run file.
#[pyfunction]
#[pyo3(signature = (words, keys, out, train, test, callback))]
pub fn synthesize<'py>(
    py: Python<'py>,
    words: Vec<String>,
    keys: &Bound<'py, PyDict>,
    out: PathBuf,
    train: Option<&Rows>,
    test: Option<&Rows>,
    callback: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let turn = Turn::take()?;
    let paths = RunPaths::new(&out);
    let mut all = vec!["undertone".to_owned()];
    let rows = InMemory::new(train.map(|rows| (rows, paths.training_rows())), None);
    if train.is_some() {
        all.push(paths.training_rows().display().to_string());
    }
    all.extend(["--out".to_owned(), out.display().to_string()]);
    all.extend(words);
    for change in changes(keys)? {
        all.extend(["--set".to_owned(), change]);
    }
    let mut names = rows.names();
    let test = test.map(|rows| in_memory(rows, "test"));
    if let Some((file, name)) = &test {
        all.extend(["--test".to_owned(), file.path().display().to_string()]);
        names.push(name.clone());
    }
    let command = SynthesizeOnly::try_parse_from(&all).map_err(|error| misread(&error))?;
    let traces = Traces::before(&out);
    let done = complete(py, &command.synthesize, &rows, &paths, callback.as_ref());
    drop(turn);
    let done = done.inspect_err(|_| traces.remove());
    to_python(py, &done.map_err(|error| naming_rows(py, error, &names))?)
}

fn complete(
    py: Python,
    command: &Synthesize,
    rows: &InMemory,
    paths: &RunPaths,
    callback: Option<&Py<PyAny>>,
) -> PyResult<Value> {
    let stop = Stop::default();
    // The first exception of a callback, or the failure to save the rows; it ends the run.
    let problem: Mutex<Option<PyErr>> = Mutex::new(None);
    let mut watch = |progress: Progress| {
        let Ok(mut problem) = problem.lock() else { return };
        if problem.is_some() {
            return;
        }
        let kept = match progress {
            Progress::Training(TrainingEvent::Ready { .. }) => rows.keep(paths).map_err(raised),
            // Private prediction has no training; its folder exists before the first text.
            Progress::Sampled { rows: 0, .. } if paths.prediction().exists() => {
                rows.keep(paths).map_err(raised)
            }
            _ => Ok(()),
        };
        let seen = kept.and_then(|()| {
            let Some(callback) = callback else { return Ok(()) };
            let event = match progress {
                Progress::Training(event) => events::value(event),
                Progress::Sampled { rows, of } => {
                    json!({ "event": "rows", "done": rows, "total": of })
                }
            };
            Python::attach(|py| events::call(py, callback, &event))
        });
        if let Err(error) = seen {
            *problem = Some(error);
            stop.asked.store(true, Ordering::SeqCst);
        }
    };
    let (done, signal) = interruptible(py, &stop.asked, || {
        command.complete(&stop, &mut watch).map(|synthesized| synthesized.json())
    });
    let problem = problem.into_inner().ok().flatten();
    match (done, problem.or(signal)) {
        (Ok(value), None) => Ok(value),
        (Err(Failure::Stopped(_)), Some(error))
            if error.is_instance_of::<PyKeyboardInterrupt>(py) =>
        {
            Err(PyKeyboardInterrupt::new_err(format!(
                "stopped; continue with undertone.synthesize(out={:?})",
                paths.folder().display().to_string()
            )))
        }
        (Ok(_) | Err(Failure::Stopped(_)), Some(error)) => Err(error),
        (Err(Failure::Stopped(why)), None) => Err(user_error(why)),
        (Err(failure), _) => Err(raised(failure)),
    }
}
