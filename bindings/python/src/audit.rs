//! Attacks on a finished run: the same as those of `undertone audit`.

use crate::errors::{naming_rows, raised};
use crate::model::in_memory;
use crate::process::Turn;
use crate::rows::Rows;
use crate::train::misread;
use crate::values::python_of;
use clap::Parser;
use pyo3::prelude::*;
use std::path::PathBuf;
use undertone_cli::audit::Audit;
use undertone_run::RunPaths;
use undertone_terminal::output::Output;

/// The arguments of an attack, parsed as on the command line.
#[derive(Parser)]
#[command(allow_negative_numbers = true)]
struct AuditOnly {
    #[command(subcommand)]
    audit: Audit,
}

/// An argument of an attack: a word, or rows in memory instead of a file.
#[derive(FromPyObject)]
pub enum Argument<'py> {
    Word(String),
    Rows(Bound<'py, Rows>),
}

/// Runs an attack, which saves its results in the run folder, and returns all results of attacks on
/// this run so far.
#[pyfunction]
pub fn audit<'py>(
    py: Python<'py>,
    folder: PathBuf,
    arguments: Vec<Argument<'py>>,
) -> PyResult<Bound<'py, PyAny>> {
    let turn = Turn::take()?;
    let (mut words, mut files, mut names) = (vec!["undertone".to_owned()], Vec::new(), Vec::new());
    for argument in arguments {
        match argument {
            Argument::Word(word) => words.push(word),
            Argument::Rows(rows) => {
                let (file, name) = in_memory(rows.get(), "data");
                words.push(file.path().display().to_string());
                files.push(file);
                names.push(name);
            }
        }
    }
    let command = AuditOnly::try_parse_from(&words).map_err(|error| misread(&error))?;
    let attacked = py.detach(|| command.audit.run(Output { json: false }));
    drop(turn);
    py.check_signals()?;
    attacked.map_err(raised).map_err(|error| naming_rows(py, error, &names))?;
    let results = undertone_run::Audit::read(&RunPaths::new(&folder).audit()).map_err(raised)?;
    python_of(py, &results)
}
