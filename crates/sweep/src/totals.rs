//! The joint cost of all private runs of a sweep on the same training data.

use crate::cells::{Cells, Run};
use crate::subset::Subsets;
use std::collections::BTreeMap;
use std::path::Path;
use undertone_accounting::ledger::Ledger;
use undertone_run::{Cost, RunFile, RunPaths, cost_together};

/// A run's plan with its ledger.
type Spent = (RunFile, Ledger);

/// One sentence per training file used by several private runs. Failed runs count too, because they
/// have made releases.
pub fn totals(cells: &Cells, subsets: &Subsets, folder: &Path) -> Vec<String> {
    let mut files: BTreeMap<&Path, Vec<Spent>> = BTreeMap::new();
    let mut unreadable = Vec::new();
    for run in cells.runs.iter().filter(|run| is_private(run)) {
        let paths = RunPaths::new(&folder.join(&run.folder));
        match paths.read_ledger() {
            Ok(ledger) => {
                let file = subsets.whole(&run.plan.data.train);
                files.entry(file).or_default().push((run.plan.file(), ledger));
            }
            Err(_) if paths.ledger().exists() => unreadable.push(run.name.as_str()),
            Err(_) => {}
        }
    }
    let several = files.into_iter().filter(|(_, runs)| runs.len() > 1);
    let mut sentences: Vec<String> = several.map(|(file, runs)| sentence(file, &runs)).collect();
    if !unreadable.is_empty() {
        sentences.push(format!(
            "Not counted, because their ledgers cannot be read: {}.",
            unreadable.join(", ")
        ));
    }
    sentences
}

fn is_private(run: &Run) -> bool {
    let plan = &run.plan;
    plan.is_private() && plan.training.seed.is_none() && plan.unaccounted().is_none()
}

fn sentence(file: &Path, runs: &[Spent]) -> String {
    let costs: Vec<Cost> =
        runs.iter().map(|(plan, ledger)| Cost { path: file, ledger, plan: Some(plan) }).collect();
    let delta = runs.iter().filter_map(|(_, ledger)| ledger.delta()).fold(0.0, f64::max);
    let count = runs.len();
    match cost_together(&costs, delta) {
        Ok(total) => format!(
            "The {count} private runs on {} have together {total}: more than each alone. This also \
             applies if only the best of them is kept.",
            file.display()
        ),
        Err(e) => format!(
            "The {count} private runs on {} cost more together than each alone, but cannot be \
             added up: {e}.",
            file.display()
        ),
    }
}
