//! A finished selection: checks that its files still prove what selection.json states.

use super::{Files, Selected};
use crate::error::{Error, Result};
use std::path::Path;
use undertone_accounting::Guarantee;
use undertone_accounting::ledger::Ledger;
use undertone_run::{RunPaths, weights_hash};

/// Reads selection.json; `None` if the selection is not finished.
pub fn read_outcome(path: &Path) -> Result<Option<Selected>> {
    if !path.exists() {
        return Ok(None);
    }
    let damaged = |e: String| Error::mistake(format!("{} is damaged: {e}", path.display()));
    let text = undertone_run::read_settings(path).map_err(|e| damaged(e.to_string()))?;
    serde_json::from_str(&text).map(Some).map_err(|e| damaged(e.to_string()))
}

/// Rejects an outcome whose ledger or weights are missing, damaged or replaced.
pub(super) fn verify(files: &Files, outcome: &Selected) -> Result<()> {
    let wrong =
        |path: &Path, problem: &str| Err(Error::mistake(format!("{}: {problem}", path.display())));
    let ledger = Ledger::read(&files.ledger)?;
    if ledger.hash() != outcome.ledger_hash {
        return wrong(&files.ledger, "is not the ledger that the selection ended with");
    }
    let proved = ledger.guarantee(outcome.guarantee.delta)?;
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    let stated = &outcome.guarantee;
    let is_proved = close(stated.epsilon.lower, proved.epsilon.lower)
        && close(stated.epsilon.upper, proved.epsilon.upper)
        && Guarantee { epsilon: proved.epsilon, ..stated.clone() } == proved;
    if !is_proved {
        return wrong(&files.outcome, "states another guarantee than the ledger proves");
    }
    if outcome.name.is_none() {
        return Ok(());
    }
    let Some(stated) = &outcome.weights_hash else {
        return wrong(
            &files.outcome,
            "has no hash of the selected weights; `undertone budget ledger` reads the guarantee of \
             a selection by an earlier version",
        );
    };
    if *stated != hash_of_selected(files)? {
        return wrong(
            &files.selected,
            "contains other weights than those that were selected; restore the selected model",
        );
    }
    Ok(())
}

/// The hash of the selected model's or adapter's weights.
pub(super) fn hash_of_selected(files: &Files) -> Result<String> {
    let selected = RunPaths::new(&files.selected);
    let folder = match selected.model().is_dir() {
        true => selected.model(),
        false => selected.adapter(),
    };
    weights_hash(&folder).map_err(|e| Error::mistake(e.to_string()))
}
