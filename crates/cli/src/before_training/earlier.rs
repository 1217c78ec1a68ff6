//! Earlier runs on the same training file, and their total cost together with a new run.
//!
//! The notes are for the curator's terminal and are not saved to any file. They contain folders and
//! ε from plans and ledgers, but the list of runs itself is private.

use crate::output;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use undertone::Plan;
use undertone::data::read;
use undertone_accounting::Mode;
use undertone_accounting::ledger::Ledger;
use undertone_run::{Cost, MethodName, RunFile, RunPaths, cost_together};

/// The folder that contains the runs.
#[derive(Clone, Debug)]
pub struct Siblings {
    parent: PathBuf,
    /// The folder of the new run, which is not counted as an earlier one.
    own: Option<PathBuf>,
}

/// A run on the same training file.
struct Earlier {
    folder: PathBuf,
    plan: RunFile,
    /// The ledger as it will be after the run's last release; `None` without a guarantee.
    ledger: Option<Ledger>,
}

impl Siblings {
    /// The siblings of a run in this folder.
    pub fn of(out: &Path) -> Self {
        let parent = match out.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Self { parent: parent.to_owned(), own: Some(out.to_owned()) }
    }

    /// The runs in a parent folder.
    pub fn within(parent: &Path) -> Self {
        Self { parent: parent.to_owned(), own: None }
    }

    /// The notes to print before a run begins. `planned` is the ledger that the run will have.
    pub fn notes(&self, plan: &Plan, planned: Option<&Ledger>) -> Vec<String> {
        let (earlier, mut notes) = self.find(plan);
        let file = plan.data.train.display();
        let (proved, others): (Vec<&Earlier>, Vec<&Earlier>) =
            earlier.iter().partition(|run| run.ledger.is_some());
        if !others.is_empty() {
            notes.push(format!(
                "{} used {file} without a guarantee: if that model is passed on, no ε covers the \
                 file",
                names(&others, |run| run.folder.display().to_string())
            ));
        }
        if proved.is_empty() {
            return notes;
        }
        let delta = plan.delta().unwrap_or(1e-5);
        let each = names(&proved, |run| {
            let epsilon = run.ledger.as_ref().and_then(|ledger| ledger.guarantee(delta).ok());
            let epsilon = epsilon.map_or("?".to_owned(), |of| output::up(of.epsilon.upper));
            format!("{} (ε = {epsilon})", run.folder.display())
        });
        let total = planned.map(|planned| total(&proved, plan, planned, delta));
        notes.push(match total {
            None => format!("earlier runs on {file}, at δ = {delta:e}: {each}"),
            Some(Ok(epsilon)) => format!(
                "earlier runs on {file}: {each}. Together with this run, ε = {} at δ = {delta:e}, \
                 if the settings of each run were fixed before another's results were seen",
                output::up(epsilon)
            ),
            Some(Err(why)) => format!(
                "earlier runs on {file}, at δ = {delta:e}: {each}. There is no total with this \
                 run: {why}"
            ),
        });
        notes
    }

    /// The earlier runs, by name, and a warning for each whose ledger cannot be read.
    fn find(&self, plan: &Plan) -> (Vec<Earlier>, Vec<String>) {
        let Ok(entries) = std::fs::read_dir(&self.parent) else { return Default::default() };
        let mut folders: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| RunPaths::new(path).plan().is_file() && !self.is_own(path))
            .collect();
        folders.sort();
        let train = places(&plan.data.train);
        let (mut runs, mut warnings) = (Vec::new(), Vec::new());
        for folder in folders {
            let paths = RunPaths::new(&folder);
            let Ok(plan) = RunFile::read(&paths.plan(), &[]) else { continue };
            if places(&plan.data.train).is_disjoint(&train) {
                continue;
            }
            // Shown without the `.` that stands for the current folder.
            let folder = folder.strip_prefix(".").map(Path::to_owned).unwrap_or(folder);
            if plan.privacy.method == MethodName::None {
                let has_model = paths.model().is_dir() || paths.adapter().is_dir();
                if has_model {
                    runs.push(Earlier { folder, plan, ledger: None });
                }
                continue;
            }
            if !paths.ledger().exists() {
                continue;
            }
            match paths.read_ledger() {
                Ok(ledger) if ledger.entries() == 0 => {}
                Ok(ledger) => {
                    let ledger = ledger.as_planned().unwrap_or(ledger);
                    let ledger = Some(ledger).filter(|of| of.terms().mode == Mode::Proved);
                    runs.push(Earlier { folder, plan, ledger });
                }
                Err(error) => warnings.push(format!(
                    "warning: {} is an earlier run on the same file, and its cost is not known: \
                     {error}",
                    folder.display()
                )),
            }
        }
        (runs, warnings)
    }

    fn is_own(&self, folder: &Path) -> bool {
        let place = |path: &Path| path.canonicalize().ok();
        self.own.as_ref().is_some_and(|own| place(own) == place(folder))
    }
}

/// The total ε of the earlier runs and the new one, or the reason why they cannot be added up.
fn total(earlier: &[&Earlier], plan: &Plan, planned: &Ledger, delta: f64) -> Result<f64, String> {
    let file = plan.file();
    let this = Cost { path: Path::new("this run"), ledger: planned, plan: Some(&file) };
    let costs = earlier.iter().filter_map(|run| {
        Some(Cost { path: &run.folder, ledger: run.ledger.as_ref()?, plan: Some(&run.plan) })
    });
    let costs: Vec<Cost> = costs.chain([this]).collect();
    match cost_together(&costs, delta) {
        Ok(guarantee) => Ok(guarantee.epsilon.upper),
        Err(error) => Err(error.to_string()),
    }
}

/// The files that a path stands for, with links resolved.
fn places(path: &Path) -> BTreeSet<PathBuf> {
    let files = read::files(path).unwrap_or_default();
    files.iter().filter_map(|file| file.canonicalize().ok()).collect()
}

/// The first few runs in words, and the number of the others.
fn names(runs: &[&Earlier], words: impl Fn(&Earlier) -> String) -> String {
    const NAMED: usize = 6;
    let some: Vec<String> = runs.iter().take(NAMED).map(|run| words(run)).collect();
    match runs.len().saturating_sub(NAMED) {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}
