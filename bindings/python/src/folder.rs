//! Reads run folders and writes reports on them.

use crate::errors::raised;
use crate::process::check;
use crate::train::columns_of;
use crate::values::python_of;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use undertone::Plan;
use undertone_cli::failure::{Failure, Outcome};
use undertone_cli::report::{Format, write};
use undertone_report::{Options, Run, report};
use undertone_run::{FinishedRun, RunPaths, read_metrics};

/// Everything in a run folder: summary, guarantee, ledger, history and audit. The ledger is read
/// again and must prove the guarantee.
#[pyfunction]
pub fn read_run(py: Python<'_>, folder: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let contents = py.detach(|| read(&folder)).map_err(raised)?;
    python_of(py, &contents)
}

fn read(folder: &Path) -> Outcome<Value> {
    let paths = RunPaths::new(folder);
    if !paths.is_finished() {
        let why = match paths.plan().exists() {
            true => "is a run that has not finished; resume it with undertone.resume",
            false => "is no folder of a finished run",
        };
        return Err(undertone_run::Error::folder(folder, why).into());
    }
    let FinishedRun { summary, plan_text, ledger, guarantee, audit } = FinishedRun::read(folder)?;
    let ledger: Option<Vec<Value>> = ledger.map(|ledger| {
        let parts = ledger.spent().parts().iter();
        parts
            .map(|part| {
                let mut row = json!(part.event);
                if let Value::Object(fields) = &mut row {
                    fields.insert("count".into(), json!(part.count));
                }
                row
            })
            .collect()
    });
    let (whole, adapter) = (paths.model(), paths.adapter());
    Ok(json!({
        "summary": summary,
        "guarantee": guarantee,
        "statement": guarantee.as_ref().map(ToString::to_string),
        "plan": plan_text,
        "ledger": ledger,
        "history": read_metrics(&paths.metrics())?,
        "audit": audit,
        "model": if whole.is_dir() { whole } else { adapter },
        "plan_path": paths.plan(),
    }))
}

/// The columns that a run reads from its training data, with or without the author.
#[pyfunction]
pub fn columns_of_run(folder: PathBuf, with_author: bool) -> PyResult<Vec<String>> {
    let plan = Plan::read(&RunPaths::new(&folder).plan(), &[]).map_err(raised)?;
    let mut data = plan.data;
    data.author = data.author.filter(|_| with_author);
    Ok(columns_of(&data))
}

/// Writes a report on finished runs.
#[pyfunction]
pub fn write_report(py: Python, folders: Vec<PathBuf>, out: PathBuf, public: bool) -> PyResult<()> {
    check()?;
    let written = py.detach(|| write(&folders, &out, Format::of(&out), Options { public }));
    written.map(|_| ()).map_err(raised)
}

/// A report on finished runs as one HTML page; with `titles`, only the sections with these titles.
#[pyfunction]
pub fn html(
    py: Python,
    folders: Vec<PathBuf>,
    titles: Option<Vec<String>>,
    public: bool,
) -> PyResult<String> {
    check()?;
    let page = py.detach(|| -> Outcome<String> {
        let runs = Run::open_all(&folders)?;
        let mut document = report(&runs, Options { public })?;
        if let Some(titles) = titles {
            document.sections.retain(|section| titles.contains(&section.title));
        }
        Ok::<_, Failure>(document.html())
    });
    page.map_err(raised)
}

/// Writes the demo's small model, its letters and its run files into a folder.
#[pyfunction]
pub fn write_demo(py: Python, folder: PathBuf, letters: usize) -> PyResult<()> {
    py.detach(|| undertone_cli::demo::write_data(&folder, letters)).map_err(raised)
}
