//! Locates a model: a folder, a name on the Hub, an adapter with its base model, or the folder of a
//! run.

use crate::failure::{Failure, Outcome};
use std::path::{Path, PathBuf};
use undertone::model::folder::{is_at_hand, locate};
use undertone::model::tuning::{base_of_adapter, is_adapter};
use undertone_run::{RunFile, RunPaths, run_of};

/// The folders of a model.
#[derive(Debug, PartialEq)]
pub struct Located {
    /// The whole model, or the base model of the adapter.
    pub base: PathBuf,
    /// The adapter, if there is one.
    pub adapter: Option<PathBuf>,
}

impl Located {
    /// The folders referred to by `--model`, `--adapter` and `--run`.
    pub fn of(model: Option<&str>, adapter: Option<&Path>, run: Option<&Path>) -> Outcome<Self> {
        let adapter = match (adapter, run) {
            (Some(adapter), _) => Some(adapter_folder(adapter)?),
            (None, Some(run)) => {
                let paths = RunPaths::new(run);
                if paths.model().is_dir() {
                    return Self::of_whole_run(model, &paths);
                }
                Some(adapter_of_run(&paths)?)
            }
            (None, None) => None,
        };
        let base = match (model, &adapter) {
            (Some(model), _) => locate(&not_a_run(model)?)?,
            (None, Some(adapter)) => locate(&base_of(adapter)?)?,
            (None, None) => return Err(Failure::arguments("name a model with --model or --run")),
        };
        Ok(Self { base, adapter })
    }

    /// The model of a run that trained all parameters.
    fn of_whole_run(model: Option<&str>, run: &RunPaths) -> Outcome<Self> {
        if let Some(model) = model {
            return Err(Failure::arguments(format!(
                "{} has a whole model, so it needs no base model; leave out --model {model}",
                run.folder().display()
            )));
        }
        Ok(Self { base: run.model(), adapter: None })
    }
}

/// A path or name that is not the folder of a run.
fn not_a_run(model: &str) -> Outcome<String> {
    let run = RunPaths::new(Path::new(model));
    match run.plan().is_file() {
        true => Err(Failure::arguments(format!(
            "{model} is the folder of a run; use its model with --run {model}"
        ))),
        false => Ok(model.to_owned()),
    }
}

/// The folder of an adapter, given directly or as the folder of its run.
fn adapter_folder(path: &Path) -> Outcome<PathBuf> {
    let run = RunPaths::new(path);
    if is_adapter(path) || !run.plan().is_file() {
        return Ok(path.to_owned());
    }
    if run.model().is_dir() {
        return Err(Failure::arguments(format!(
            "{} has a whole model and no adapter; use it with --run {}",
            path.display(),
            path.display()
        )));
    }
    adapter_of_run(&run)
}

fn adapter_of_run(run: &RunPaths) -> Outcome<PathBuf> {
    let adapter = run.adapter();
    if is_adapter(&adapter) {
        return Ok(adapter);
    }
    let folder = run.folder().display();
    Err(Failure::arguments(match run.plan().is_file() {
        true => format!(
            "{folder} has no model yet; resume the run with `undertone train --out {folder} \
             --resume`"
        ),
        false => {
            format!("{folder} is not the folder of a run; it has no {}", RunPaths::plan_name())
        }
    }))
}

/// The base model of an adapter: the one in the plan of its run, or in the adapter's configuration.
fn base_of(adapter: &Path) -> Outcome<String> {
    let of_run = run_of(adapter).map(|run| run.plan()).filter(|plan| plan.is_file());
    let (base, is_path) = match of_run {
        Some(plan) => {
            let model = RunFile::read(&plan, &[])?.model;
            (model.name(), model.path.is_some())
        }
        None => {
            let base = base_of_adapter(adapter)?.ok_or_else(|| {
                Failure::arguments(format!(
                    "{} does not name its base model; give it with --model",
                    adapter.display()
                ))
            })?;
            let is_path = Path::new(&base).is_absolute() || base.starts_with('.');
            (base, is_path)
        }
    };
    if is_path && !is_at_hand(&base) {
        return Err(Failure::arguments(format!(
            "{} was trained on the model in {base}, which is not there; give its folder with \
             --model",
            adapter.display()
        )));
    }
    Ok(base)
}
