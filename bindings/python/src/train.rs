//! `train` and `resume`.

use crate::errors::{naming_rows, raised, user_error};
use crate::events;
use crate::process::{LOOK_EVERY, Turn};
use crate::rows::Rows;
use crate::values::{to_json, to_toml};
use clap::Parser;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use undertone::collective::Ranks;
use undertone::data::read::MemoryFile;
use undertone::tensor::Device;
use undertone::train::{Error, Start, TrainingEvent, train_until};
use undertone::{Plan, task_of};
use undertone_cli::register::{Booking, Ended, RegisterArguments};
use undertone_cli::{draw, source};
use undertone_run::{RunPaths, WrittenRun};
use undertone_terminal::device::DeviceArguments;

/// The device argument, parsed as on the command line.
#[derive(Parser)]
struct DeviceOnly {
    #[command(flatten)]
    device: DeviceArguments,
}

/// Parses a device and a precision.
pub fn device_of(device: &str, precision: Option<&str>) -> PyResult<DeviceArguments> {
    let mut words = vec!["undertone", "--device", device];
    words.extend(precision.iter().flat_map(|precision| ["--precision", precision]));
    DeviceOnly::try_parse_from(words).map(|parsed| parsed.device).map_err(|e| misread(&e))
}

/// An argument-parser error as one sentence.
pub fn misread(error: &clap::Error) -> PyErr {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let sentence = first.split_whitespace().collect::<Vec<_>>().join(" ");
    user_error(sentence.trim_start_matches("error: "))
}

/// The run described by keys of the run file.
fn written(keys: &Bound<'_, PyDict>) -> PyResult<WrittenRun> {
    WrittenRun::parse("", &changes(keys)?).map_err(raised)
}

/// The same with one more override.
fn written_with(keys: &Bound<'_, PyDict>, change: String) -> PyResult<WrittenRun> {
    let mut changes = changes(keys)?;
    changes.push(change);
    WrittenRun::parse("", &changes).map_err(raised)
}

/// Overrides of keys of the run file, as `--set` takes them.
pub fn changes(keys: &Bound<'_, PyDict>) -> PyResult<Vec<String>> {
    let mut changes = Vec::new();
    for (key, value) in keys.iter() {
        let key: String = key.extract()?;
        let value = to_json(&value).map_err(|e| e.named(&key))?;
        let Some(text) = to_toml(&value) else {
            return Err(user_error(format!("{key} has no value; leave it out")));
        };
        changes.push(format!("{key}={text}"));
    }
    Ok(changes)
}

/// The columns that a run reads from its training data, including the author column.
pub fn columns_of(data: &undertone_run::DataSection) -> Vec<String> {
    let task = task_of(data);
    let mut columns: Vec<String> = task.columns().into_iter().map(str::to_owned).collect();
    columns.extend(data.author.clone());
    columns
}

/// The columns needed by a run with these keys, and whether its labels are read from them.
#[pyfunction]
pub fn needed_columns(keys: &Bound<'_, PyDict>) -> PyResult<Vec<String>> {
    Ok(columns_of(written(keys)?.data()))
}

/// Rows in memory that replace the files of a run.
pub struct InMemory {
    train: Option<MemoryFile>,
    validation: Option<MemoryFile>,
}

impl InMemory {
    /// Places rows under the paths used in the run's plan.
    pub fn new(train: Option<(&Rows, PathBuf)>, validation: Option<(&Rows, PathBuf)>) -> Self {
        let put = |(rows, path): (&Rows, PathBuf)| rows.at(path);
        Self { train: train.map(put), validation: validation.map(put) }
    }

    /// Saves the rows in the run folder, so that the run can be resumed and audited without this
    /// process.
    pub fn keep(&self, paths: &RunPaths) -> undertone_run::Result<()> {
        for file in [&self.train, &self.validation].into_iter().flatten() {
            if !file.path().exists() {
                paths.keep_rows(file.path(), file.rows())?;
            }
        }
        Ok(())
    }

    /// Names for messages, instead of paths that do not exist.
    pub fn names(&self) -> Vec<(String, &'static str)> {
        let name = |file: &Option<MemoryFile>, name| {
            file.as_ref().map(|file| (file.path().display().to_string(), name))
        };
        [name(&self.train, "data"), name(&self.validation, "validation")]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// The budget that pays for a run: a register and the name of one of its data sets.
pub fn budget_of(
    register: Option<PathBuf>,
    dataset: Option<String>,
) -> PyResult<RegisterArguments> {
    match (&register, &dataset) {
        (Some(_), None) => {
            Err(user_error("register= needs dataset=, the name of a data set in it"))
        }
        (None, Some(_)) => Err(user_error("dataset= needs register=, the file of the register")),
        _ => Ok(RegisterArguments::new(register, dataset)),
    }
}

/// Trains a new run in the folder `out` and returns the folder.
#[pyfunction]
#[pyo3(signature = (keys, out, train, validation, device, precision, budget, callback))]
#[allow(clippy::too_many_arguments)]
pub fn train<'py>(
    py: Python<'py>,
    keys: &Bound<'py, PyDict>,
    out: Option<PathBuf>,
    train: Option<&Rows>,
    validation: Option<&Rows>,
    device: &str,
    precision: Option<&str>,
    budget: (Option<PathBuf>, Option<String>),
    callback: Option<Py<PyAny>>,
) -> PyResult<PathBuf> {
    let turn = Turn::take()?;
    let out = out.unwrap_or_else(|| source::new_folder(None));
    let paths = RunPaths::new(&out);
    let keys = keys.copy()?;
    for (key, path, rows) in [
        ("data.train", paths.training_rows(), train),
        ("data.validation", paths.validation_rows(), validation),
    ] {
        if rows.is_some() {
            keys.set_item(key, path)?;
        }
    }
    let rows = InMemory::new(
        train.map(|rows| (rows, paths.training_rows())),
        validation.map(|rows| (rows, paths.validation_rows())),
    );
    let trained = (|| {
        let budget = budget_of(budget.0, budget.1)?.open().map_err(raised)?;
        let mut written = written(&keys)?;
        if let Some(budget) = &budget
            && let Some(change) = budget.units(&written).map_err(raised)?
        {
            written = self::written_with(&keys, change)?;
        }
        let arguments = device_of(device, precision)?;
        let device = arguments.device().map_err(raised)?;
        let resolved = py.detach(|| Plan::resolve(&written, &device)).map_err(raised)?;
        let mut plan = resolved.plan;
        if let Some(precision) = arguments.precision() {
            plan.compute.precision = Some(precision);
        }
        if let Some(callback) = &callback {
            let chosen = resolved.chosen.iter().map(|key| source::choice(*key, &plan));
            let chosen: Vec<String> = chosen.collect();
            events::call(py, callback, &json!({ "event": "plan", "chosen": chosen }))?;
        }
        let traces = Traces::before(&out);
        // Before anything of the data is read.
        let booking = budget.map(|budget| budget.reserve(&mut plan, "train", &out));
        let booking = booking.transpose().map_err(raised)?;
        let run = Training { plan, out: &out, resume: false, device, rows: &rows };
        let trained = run.start(py, callback.as_ref()).inspect_err(|_| traces.remove());
        conclude(booking, &paths)?;
        trained
    })();
    drop(turn);
    trained.map_err(|error: PyErr| naming_rows(py, error, &rows.names()))?;
    Ok(out)
}

/// Settles the reservation of a run, keeps it if the run can be resumed, and gives it back if the run
/// released nothing.
fn conclude(booking: Option<Booking>, paths: &RunPaths) -> PyResult<()> {
    let ended = match paths.is_finished() {
        true => Ended::Finished,
        false => Ended::Failed,
    };
    booking.map_or(Ok(()), |booking| booking.conclude(ended)).map_err(raised)
}

/// Resumes the run in the folder `out`.
#[pyfunction]
#[pyo3(signature = (out, train, validation, device, precision, register, callback))]
#[allow(clippy::too_many_arguments)]
pub fn resume(
    py: Python,
    out: PathBuf,
    train: Option<&Rows>,
    validation: Option<&Rows>,
    device: &str,
    precision: Option<&str>,
    register: Option<PathBuf>,
    callback: Option<Py<PyAny>>,
) -> PyResult<()> {
    let turn = Turn::take()?;
    let paths = RunPaths::new(&out);
    if !paths.plan().exists() {
        return Err(user_error(format!(
            "{} holds no run that has begun; start one with undertone.train",
            out.display()
        )));
    }
    let mut plan = Plan::read(&paths.plan(), &[]).map_err(raised)?;
    let rows = InMemory::new(
        own_rows(train, Some(&plan.data.train), &paths.training_rows(), "data")?,
        own_rows(
            validation,
            plan.data.validation.as_ref(),
            &paths.validation_rows(),
            "validation",
        )?,
    );
    let arguments = device_of(device, precision)?;
    if let Some(precision) = arguments.precision() {
        plan.compute.precision = Some(precision);
    }
    let device = arguments.device().map_err(raised)?;
    let given = RegisterArguments::new(register, None);
    let booking = Booking::of_run(&out, &given).map_err(raised)?;
    booking.iter().try_for_each(Booking::check_open).map_err(raised)?;
    let run = Training { plan, out: &out, resume: true, device, rows: &rows };
    let trained = run.start(py, callback.as_ref());
    conclude(booking, &paths)?;
    drop(turn);
    trained.map_err(|error| naming_rows(py, error, &rows.names()))
}

/// Rows passed to resume a run, placed under the path in its plan, which must be that of rows in
/// memory.
fn own_rows<'a>(
    rows: Option<&'a Rows>,
    planned: Option<&PathBuf>,
    own: &Path,
    name: &str,
) -> PyResult<Option<(&'a Rows, PathBuf)>> {
    let Some(rows) = rows else { return Ok(None) };
    let is_own = |path: &&PathBuf| path.file_name() == own.file_name() && in_folder_of(path, own);
    match planned.filter(is_own) {
        Some(path) => Ok(Some((rows, path.clone()))),
        None => Err(user_error(format!(
            "the run reads its {name} from a file; resume it without {name}="
        ))),
    }
}

/// Whether both paths are in folders of the same name.
fn in_folder_of(path: &Path, other: &Path) -> bool {
    let folder = |path: &Path| path.parent().and_then(Path::file_name).map(ToOwned::to_owned);
    folder(path) == folder(other)
}

/// A run about to start.
struct Training<'a> {
    plan: Plan,
    out: &'a Path,
    resume: bool,
    device: Device,
    rows: &'a InMemory,
}

impl Training<'_> {
    /// Trains without the interpreter lock, which is taken only for callbacks and signals.
    fn start(self, py: Python, callback: Option<&Py<PyAny>>) -> PyResult<()> {
        let Self { plan, out, resume, device, rows } = self;
        let paths = RunPaths::new(out);
        let stop = AtomicBool::new(false);
        // An exception from a callback or a signal; it ends the run after the current step.
        let mut interruption: Option<PyErr> = None;
        let mut not_kept = None;
        let mut looked = Instant::now();
        let mut on_event = |event: TrainingEvent| {
            if matches!(event, TrainingEvent::Ready { .. })
                && let Err(error) = rows.keep(&paths)
            {
                not_kept = Some(error);
                stop.store(true, Ordering::SeqCst);
            }
            if interruption.is_some() || (callback.is_none() && looked.elapsed() < LOOK_EVERY) {
                return;
            }
            looked = Instant::now();
            let seen = Python::attach(|py| {
                py.check_signals()?;
                callback
                    .map_or(Ok(()), |callback| events::call(py, callback, &events::value(&event)))
            });
            if let Err(error) = seen {
                interruption = Some(error);
                stop.store(true, Ordering::SeqCst);
            }
        };
        let ranks = Ranks::alone();
        let trained = py.detach(|| {
            let start = Start { plan, out, resume, device, data: None, ranks, tape: None };
            let summary = train_until(&stop, start, &mut on_event)?;
            draw(&summary, out)?;
            Ok::<_, undertone_cli::failure::Failure>(())
        });
        if let Some(error) = not_kept {
            return Err(raised(error));
        }
        match (trained, interruption) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(error)) => Err(error),
            (
                Err(undertone_cli::failure::Failure::Train(Error::Stopped { step, steps })),
                error,
            ) => Err(self::stopped(py, error, out, step, steps)),
            (Err(failure), _) => Err(raised(failure)),
        }
    }
}

/// The exception of a stopped run: for Ctrl-C it says how to resume, and a callback's own exception
/// is raised unchanged.
fn stopped(py: Python, error: Option<PyErr>, out: &Path, step: u64, steps: u64) -> PyErr {
    match error {
        Some(error) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => error,
        _ => PyKeyboardInterrupt::new_err(format!(
            "stopped after step {step} of {steps}; resume with undertone.resume({:?})",
            out.display().to_string()
        )),
    }
}

/// Files that a run that fails to start must not leave behind.
pub struct Traces {
    /// The run folder, if it did not exist.
    folder: Option<PathBuf>,
    /// Its ancestors that did not exist, the deepest first.
    parents: Vec<PathBuf>,
    was_there: bool,
}

impl Traces {
    pub fn before(out: &Path) -> Self {
        let is_empty = std::fs::read_dir(out).map_or(true, |mut inside| inside.next().is_none());
        let parents = out
            .ancestors()
            .skip(1)
            .take_while(|parent| !parent.as_os_str().is_empty() && !parent.exists());
        Self {
            folder: is_empty.then(|| out.to_owned()),
            parents: parents.map(Path::to_owned).collect(),
            was_there: out.exists(),
        }
    }

    /// Removes a run that has released nothing. Failures to remove something are ignored.
    pub fn remove(&self) {
        let Some(folder) = &self.folder else { return };
        let paths = RunPaths::new(folder);
        if paths.ledger().exists() || paths.checkpoint().exists() || paths.metrics().exists() {
            return;
        }
        let _ = paths.remove_run();
        match self.was_there {
            true => drop(std::fs::create_dir_all(folder)),
            false => self.parents.iter().for_each(|parent| drop(std::fs::remove_dir(parent))),
        }
    }
}
