//! Checks whether a sweep can be a private selection.

use super::{SelectionSection, Validation};
use crate::cells::Run;
use crate::error::{Error, Result};
use crate::file::Sweep;
use crate::metric::Metric;
use undertone::Method;

/// The sweep's `[selection]`, if it is complete.
pub fn section(sweep: &Sweep) -> Result<SelectionSection> {
    let file = &sweep.file;
    let Some(section) = file.selection else {
        return Err(Error::mistake(
            "--private-selection needs [selection] in the sweep file, with runs = \
             { negative_binomial = { eta = 1.0, gamma = 0.1 } } and validation = \"public\"",
        ));
    };
    if section.validation != Some(Validation::Public) {
        return Err(Error::mistake(
            "the best run is selected by the validation file without noise, so it must be public: \
             give [selection] validation = \"public\" if it is",
        ));
    }
    section.runs.validate()?;
    if !matches!(file.metric, Metric::Accuracy | Metric::F1 | Metric::Loss | Metric::Perplexity) {
        return Err(Error::mistake(format!(
            "a private selection needs the metric accuracy, f1, loss or perplexity, not {}",
            file.metric
        )));
    }
    let lines = || sweep.rows.iter().chain(&sweep.columns);
    for (is_there, key) in [
        (!file.seeds.is_empty(), "seeds"),
        (file.audit.is_some(), "audit"),
        (file.losses, "losses"),
        (file.noise, "noise"),
        (!file.also.is_empty(), "also"),
        (file.average.is_some(), "average"),
        (file.baseline.is_some(), "baseline"),
        (file.source.is_some(), "source"),
        (file.keep_weights, "keep_weights"),
        // One more row in the training file would displace another.
        (file.examples.is_some() || lines().any(|line| line.examples.is_some()), "examples"),
        (lines().any(|line| line.reference), "reference"),
    ] {
        if is_there {
            return Err(Error::mistake(format!(
                "{key} cannot be used in a private selection, which releases one private run; \
                 remove it"
            )));
        }
    }
    Ok(section)
}

/// Checks the candidates and returns their δ.
pub fn candidates(sweep: &Sweep, runs: &[Run]) -> Result<f64> {
    let Some(first) = runs.first() else {
        return Err(Error::mistake("there is no cell to select"));
    };
    let mut delta = None;
    for run in runs {
        let mistake = |what: &str| Err(Error::mistake(format!("{}: {what}", run.name)));
        let Method::Central(central) = &run.plan.method else {
            return mistake("a private selection is among runs of central DP");
        };
        if central.is_published() || run.plan.training.seed.is_some() {
            return mistake("a private selection is among private runs: no seed, no paper mode");
        }
        if run.plan.data != first.plan.data {
            return mistake("all runs of a private selection must have the same [data]");
        }
        if *delta.get_or_insert(central.delta) != central.delta {
            return mistake("all runs of a private selection must have the same delta");
        }
        if sweep.file.metric.needs_validation() && run.plan.data.validation.is_none() {
            return mistake("the metric is measured on data.validation, which is missing");
        }
        if run.plan.validates_on_training_file() {
            return mistake("data.validation is the private training file, so it is not public");
        }
    }
    delta.ok_or_else(|| Error::mistake("there is no cell to select"))
}
