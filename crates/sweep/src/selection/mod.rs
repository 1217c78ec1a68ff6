//! Private selection: the best of a random number of private runs, and nothing else
//! (`undertone_accounting::selection` has the proof).
//!
//! ```text
//! cells ─▶ cost (ledger first) ─▶ draw: K and K cells, secret ─▶ K runs ─▶ the best: its model
//!                                                                    └─▶ removed
//! ```
//!
//! How the requirements of the proof are met:
//!
//! - K and the cells come from the system's random number generator and are saved before anything
//!   runs. An interrupted selection continues with the same draw, so nobody can redraw until the
//!   outcome is convenient.
//! - Only the best run's model, its cell and its score are released. K, the other runs and their
//!   files are removed at the end, and are assumed to remain unseen until then.
//! - The score is a function of the model and of a public validation file: with a private one, the
//!   score would reveal it without noise.
//! - Ties are broken at random.

mod checks;
mod draw;
mod finished;

use crate::cells::Run;
use crate::child::{Children, Launch};
use crate::error::{Error, Result};
use crate::runner::{self, Finished};
use crate::{Prepared, write_whole};
use draw::Draw;
use finished::read_outcome;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use undertone::train::{PlannedCost, card, planned_cost};
use undertone_accounting::ledger::{Ledger, Terms};
use undertone_accounting::selection::{NumberOfRuns, selection};
use undertone_accounting::{Composition, Event, Guarantee};
use undertone_run::{RunFile, RunPaths, Summary};

/// `[selection]` of a sweep file.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectionSection {
    /// Distribution of the number of runs.
    pub runs: NumberOfRuns,
    /// Declares the validation file public.
    pub validation: Option<Validation>,
}

/// Declaration about the validation file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Validation {
    /// Public: it does not depend on the training file.
    Public,
}

/// The cost of a selection.
#[derive(Debug)]
pub struct PlannedSelection {
    terms: Terms,
    event: Event,
    /// Upper bound on ε of the whole selection.
    pub epsilon: f64,
    pub delta: f64,
    /// Distribution of the number of runs.
    pub runs: NumberOfRuns,
}

/// The outcome of a selection, as stored in selection.json.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Selected {
    /// The best run's cell; `None` if no run was drawn.
    pub name: Option<String>,
    /// The metric by which runs were compared.
    pub metric: String,
    /// The metric of the best run on the validation file.
    pub score: Option<f64>,
    /// The guarantee of the whole selection.
    pub guarantee: Guarantee,
    /// Hash of the last line of the selection's ledger.
    pub ledger_hash: String,
    /// Hash of the selected weights; `None` if no run was drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_hash: Option<String>,
    /// The mean number of runs. The actual number is secret.
    pub mean_runs: f64,
    /// All candidate cells.
    pub candidates: Vec<String>,
    /// The best run's run file, with all defaults filled in.
    pub plan: Option<RunFile>,
}

/// Files of a selection's folder.
struct Files {
    runs: PathBuf,
    draw: PathBuf,
    outcome: PathBuf,
    /// The best model.
    selected: PathBuf,
    ledger: PathBuf,
}

impl Files {
    fn new(folder: &Path) -> Self {
        Self {
            runs: folder.join("runs"),
            draw: folder.join("draw.json"),
            outcome: folder.join("selection.json"),
            selected: folder.join("selected"),
            ledger: RunPaths::new(folder).ledger(),
        }
    }
}

impl Prepared {
    /// Checks the sweep and computes the cost of its selection, whichever candidates are drawn.
    /// Reads the data, but releases nothing.
    pub fn plan_selection(&self) -> Result<PlannedSelection> {
        let section = checks::section(&self.sweep)?;
        let delta = checks::candidates(&self.sweep, &self.cells.runs)?;
        let plans: Vec<_> = self.cells.runs.iter().map(|run| &run.plan).collect();
        let planned = undertone::train::planned_releases(&plans)?;
        let releases: Vec<Composition> =
            planned.iter().map(|(_, releases)| releases.clone()).collect();
        let (event, epsilon) = selection(section.runs, &releases, delta)?;
        let terms = self.terms(planned.into_iter().map(|(terms, _)| terms), event)?;
        Ok(PlannedSelection { terms, event, epsilon, delta, runs: section.runs })
    }

    /// The cost of the selection from the plans alone, known before the data are read.
    pub fn selection_cost(&self) -> Result<PlannedCost> {
        let section = checks::section(&self.sweep)?;
        let delta = checks::candidates(&self.sweep, &self.cells.runs)?;
        let costs = self.cells.runs.iter().map(|run| planned_cost(&run.plan));
        let costs = costs.collect::<std::result::Result<Vec<_>, undertone::train::Error>>()?;
        let releases: Vec<Composition> = costs.iter().map(|cost| cost.releases.clone()).collect();
        let (event, _) = selection(section.runs, &releases, delta)?;
        let first =
            costs.into_iter().next().ok_or_else(|| Error::mistake("there is no cell to select"))?;
        let releases = Composition::new(first.releases.adjacency).with(event, 1);
        Ok(PlannedCost { releases, delta, ..first })
    }

    /// The terms of the selection's ledger: the assumptions of all candidates and those of the
    /// selection itself.
    fn terms(&self, of_runs: impl Iterator<Item = Terms>, event: Event) -> Result<Terms> {
        let mut all: Option<Terms> = None;
        for terms in of_runs {
            match &mut all {
                None => all = Some(terms),
                Some(all) => {
                    let known = |assumption: &String| all.assumptions.contains(assumption);
                    let more: Vec<String> = terms
                        .assumptions
                        .iter()
                        .filter(|assumption| !known(assumption))
                        .cloned()
                        .collect();
                    all.assumptions.extend(more);
                }
            }
        }
        let mut terms = all.ok_or_else(|| Error::mistake("there is no cell to select"))?;
        if let Some(file) = &self.cells.runs[0].plan.data.validation {
            terms.assumptions.push(format!(
                "{}, by which the best run was selected, is public and does not depend on the \
                 training file",
                file.display()
            ));
        }
        terms.assumptions.push(
            "only the model, settings and score of the best run are released: not the number of \
             runs, the other runs, their files and output, or the time and memory that they took"
                .to_owned(),
        );
        terms.announced = vec![undertone_accounting::Part { event, count: 1 }];
        Ok(terms)
    }

    /// Draws and trains the runs, keeps the best model and removes the others.
    pub fn select(&self, planned: &PlannedSelection, launch: &Launch) -> Result<Selected> {
        let files = Files::new(&self.folder);
        let _lock = self.hold(&files.runs, true)?;
        if let Some(outcome) = read_outcome(&files.outcome)? {
            finished::verify(&files, &outcome)?;
            remove_the_others(&files)?;
            return Ok(outcome);
        }
        if !files.draw.exists() && files.selected.exists() {
            return Err(Error::mistake(format!(
                "{} contains a selected model, but {} is missing; restore it, or choose another \
                 folder with --out",
                files.selected.display(),
                files.outcome.display()
            )));
        }
        if !files.draw.exists() && other_runs(&files)? {
            return Err(Error::mistake(format!(
                "{} contains runs of a sweep without selection, whose ledgers count; choose \
                 another folder with --out",
                files.runs.display()
            )));
        }
        let draw = Draw::read_or_make(&files.draw, planned.runs, &self.cells.runs)?;
        let terms = Terms { id: draw.id.clone(), ..planned.terms.clone() };
        let mut ledger = Ledger::open_or_create(&files.ledger, terms.clone())?;
        if *ledger.terms() != terms {
            return Err(Error::mistake(format!(
                "{} belongs to another selection; choose another folder with --out",
                files.ledger.display()
            )));
        }
        // Record before the first run: a crash wastes budget but hides nothing.
        if ledger.entries() == 0 {
            ledger.append(planned.event, 1)?;
        }
        let runs = draw.runs(&self.cells.runs);
        let audit = None;
        let children = Children { launch, folder: files.runs.clone(), keep_weights: true, audit };
        let results =
            runner::run_all(&runs.iter().collect::<Vec<_>>(), &children, self.sweep.file.metric);
        let failed = results.iter().filter(|result| result.is_err()).count();
        if let Some(why) = results.iter().find_map(|result| result.as_ref().err()) {
            return Err(Error::Unfinished { failed, why: why.clone() });
        }
        let done: Vec<Finished> = results.into_iter().flatten().collect();
        let guarantee = ledger.guarantee(planned.delta)?;
        let best = self.best(&draw, &done);
        let mut outcome = Selected {
            name: best.map(|best| self.cells.runs[draw.drawn[best].candidate].name.clone()),
            metric: self.sweep.file.metric.to_string(),
            score: best.and_then(|best| self.sweep.file.metric.of(&done[best])),
            guarantee,
            ledger_hash: ledger.hash().to_owned(),
            weights_hash: None,
            mean_runs: planned.runs.mean(),
            candidates: self.cells.runs.iter().map(|run| run.name.clone()).collect(),
            plan: best.map(|best| done[best].summary.plan.clone()),
        };
        if let Some(best) = best {
            release(&files, &runs[best], &done[best].summary, &outcome)?;
            outcome.weights_hash = Some(finished::hash_of_selected(&files)?);
        }
        let text =
            serde_json::to_string_pretty(&outcome).map_err(|e| Error::write(&files.outcome, e))?;
        write_whole(&files.outcome, &text)?;
        remove_the_others(&files)?;
        Ok(outcome)
    }

    /// The index of the best run. One without a finite metric is worse than all others.
    fn best(&self, draw: &Draw, done: &[Finished]) -> Option<usize> {
        let metric = self.sweep.file.metric;
        let sign = if metric.higher_is_better() { 1.0 } else { -1.0 };
        let score = |i: usize| metric.of(&done[i]).map_or(f64::NEG_INFINITY, |value| sign * value);
        let order = |&left: &usize, &right: &usize| {
            let ties = || draw.drawn[left].tie.cmp(&draw.drawn[right].tie);
            score(left).total_cmp(&score(right)).then_with(ties)
        };
        (0..done.len()).max_by(order)
    }
}

/// Moves the best run's model out of its folder, with a card that states the guarantee of the
/// selection, because the run's own ε would be too small.
fn release(files: &Files, run: &Run, summary: &Summary, outcome: &Selected) -> Result<()> {
    let (from, to) = (RunPaths::new(&files.runs.join(&run.folder)), RunPaths::new(&files.selected));
    std::fs::create_dir_all(&files.selected).map_err(|e| Error::write(&files.selected, e))?;
    let mut stated = Summary {
        guarantee: Some(outcome.guarantee.clone()),
        ledger_hash: Some(outcome.ledger_hash.clone()),
        ..summary.clone()
    };
    // Declared by `[selection]`.
    stated.plan.data.validation_is_public = true;
    for (from, to) in [(from.model(), to.model()), (from.adapter(), to.adapter())] {
        // Already moved by a selection that was interrupted at this point.
        if from.exists() {
            let card = card(&stated, &from)?;
            write_whole(&from.join("README.md"), &card)?;
            std::fs::rename(&from, &to).map_err(|e| Error::write(&to, e))?;
        }
    }
    if from.labels().exists() {
        std::fs::create_dir_all(to.private()).map_err(|e| Error::write(&to.private(), e))?;
        std::fs::rename(from.labels(), to.labels()).map_err(|e| Error::write(&to.labels(), e))?;
    }
    Ok(())
}

/// Names of the entries in the folder of runs.
fn entries(files: &Files) -> Result<Vec<String>> {
    match std::fs::read_dir(&files.runs) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(Error::write(&files.runs, e)),
        Ok(all) => {
            let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
            Ok(all.filter_map(|entry| entry.ok().map(name)).collect())
        }
    }
}

/// Whether the folder contains runs that no selection drew.
fn other_runs(files: &Files) -> Result<bool> {
    Ok(entries(files)?.iter().any(|name| files.runs.join(name).is_dir()))
}

/// Removes all drawn runs, and with them their number.
fn remove_the_others(files: &Files) -> Result<()> {
    let missing = |e: &std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
    for name in entries(files)?.iter().filter(|name| name.starts_with("run-")) {
        let path = files.runs.join(name);
        let removed = match path.is_dir() {
            true => std::fs::remove_dir_all(&path),
            false => std::fs::remove_file(&path),
        };
        match removed {
            Err(e) if !missing(&e) => return Err(Error::write(&path, e)),
            _ => {}
        }
    }
    // The folder stays if it contains anything else.
    let _ = std::fs::remove_dir(&files.runs);
    match std::fs::remove_file(&files.draw) {
        Err(e) if !missing(&e) => Err(Error::write(&files.draw, e)),
        _ => Ok(()),
    }
}
