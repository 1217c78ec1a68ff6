//! Opens the privacy ledger of a run, with the terms shared by central and local DP.

use super::Begin;
use super::Prepared;
use crate::data::Labels;
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::step::RunLedger;
use crate::synthesize::Classes;
use std::path::PathBuf;
use undertone_accounting::ledger::{Ledger, RunBinding, Terms};
use undertone_accounting::{Mode, Unit};
use undertone_run::{LongTexts, OnBadRow, Resolved};

/// Creates the ledger, or opens the one that the run started with, whose terms must match. Its
/// first line is bound to the run, whose finished ledger has `entries` entries.
pub fn open(begin: &Begin, terms: Terms, delta: f64, entries: u64) -> Result<RunLedger> {
    let Begin { plan, prepared, resolved, folder, secret, ranks, .. } = begin;
    let ranks = (*ranks).clone();
    let Some(folder) = folder else {
        return Ok(RunLedger::new(None, PathBuf::new(), ranks, delta));
    };
    let path = folder.ledger();
    let run = RunBinding {
        plan: folder.plan_hash()?,
        units: resolved.units as u64,
        sampling_rate: resolved.sampling_rate,
        examples_per_user: resolved.examples.map(|examples| examples.per_user),
        steps: resolved.steps_per_epoch * u64::from(plan.training.epochs),
        noise_multipliers: resolved.noise_multipliers.clone(),
        delta,
        entries,
        device: prepared.model.device().machine(),
    };
    let terms = Terms { id: secret.ledger_id(), run: Some(run), ..terms };
    let ledger = Ledger::open_or_create(&path, terms.clone())?;
    if *ledger.terms() != terms {
        return Err(Error::folder(
            &path,
            "was started with another plan or other data; resume with the original ones",
        ));
    }
    // This happens before the first release: deleting the ledger afterward does not allow starting
    // over.
    folder.mark_begun()?;
    Ok(RunLedger::new(Some(ledger), path, ranks, delta))
}

/// The privacy unit of a plan.
pub fn unit(plan: &Plan) -> Unit {
    if plan.data.author.is_some() { Unit::User } else { Unit::Example }
}

/// The mode in the ledger's terms: proved, as published, or seeded.
pub fn mode(plan: &Plan, published: bool) -> Mode {
    match (published, plan.training.seed) {
        (true, _) => Mode::Paper,
        (false, Some(_)) => Mode::Seeded,
        (false, None) => Mode::Proved,
    }
}

/// The reason why the ledger's guarantee does not cover a private run, if there is one.
pub fn not_private_because(seed: Option<u64>, unaccounted: Option<&str>) -> Option<String> {
    match seed {
        Some(seed) => Some(format!("anyone who knows the seed ({seed}) can subtract the noise")),
        None => unaccounted.map(str::to_owned),
    }
}

/// The assumption that the number of units is public; `None` if it was declared.
///
/// # What is proved with a declared number
///
/// Let U be the declared number. The sampling rate q, the number of steps, the divisor and the
/// noise are functions of U and of the run file. Each unit of the training file joins a step
/// independently with probability q, so adding or removing one unit changes the distribution of a
/// step exactly as the accountant's Poisson-subsampled Gaussian does, whatever the true number N
/// is. No other quantity that leaves the run is a function of N. So the add/remove guarantee holds
/// for data sets of any size, and N is protected with the same ε as membership.
fn public_count(plan: &Plan, resolved: &Resolved) -> Option<String> {
    if plan.declared_units().is_some() {
        return None;
    }
    if let Some(examples) = &resolved.examples {
        return Some(public_counts(plan, resolved.units, examples.number));
    }
    Some(match plan.data.hold_out {
        None => format!("the number of units in the training file ({}) is public", resolved.units),
        Some(_) => format!(
            "the number of units of the training file that are not held out ({}) is public",
            resolved.units
        ),
    })
}

/// The assumption of runs that sample examples one by one: sampling rate, steps and divisor are
/// functions of the number of examples.
fn public_counts(plan: &Plan, users: usize, examples: usize) -> String {
    let held_out = if plan.data.hold_out.is_some() { " that are not held out" } else { "" };
    // Otherwise each row is one example.
    let rows = match plan.data.pack || plan.data.long_texts != LongTexts::Cut {
        true => ", and that of their rows",
        false => "",
    };
    format!(
        "the number of users in the training file{held_out} ({users}) and that of their \
         examples{rows} ({examples}), at most {} each, are public",
        plan.data.most_per_author
    )
}

/// The assumption about classes that were inferred from the training file. A class that only one
/// unit has would change the shape of the model and the indices of the classes after it.
fn of_found_labels(plan: &Plan, labels: &Labels) -> String {
    match plan.data.publish_labels {
        true => format!(
            "the names of the classes ({}), which were found in the training file, are public",
            labels.names().join(", ")
        ),
        false => format!(
            "the training file has the same {} classes with and without any one unit, and their \
             number is public; their names are not released",
            labels.len()
        ),
    }
}

/// The assumptions of the guarantee, in the order of the ledger: those of every private run,
/// interspersed with those of the method.
pub fn assumptions(
    plan: &Plan,
    resolved: &Resolved,
    prepared: &Prepared,
    of_method: Vec<String>,
) -> Vec<String> {
    let mut assumptions: Vec<String> = public_count(plan, resolved).into_iter().collect();
    assumptions.extend([
        "the model that the run began from does not depend on the training file".to_owned(),
        "metrics.jsonl, the folder private/, an event file for TensorBoard, secret.key, \
         identity.json, audit.json and its drawings, a relevance map without noise, the displayed \
         progress, and the time and memory of the run are not released: they depend on the data \
         without noise"
            .to_owned(),
        "rounding in f32 and bf16 arithmetic, through which one unit changes the last digits of \
         the gradients of others, of its own norm and of adaptive clipping's count, reveals nothing"
            .to_owned(),
        "the noise, drawn in f32 and rounded to a grid, is treated as Gaussian, which it is up to \
         a relative error of about 2e-7"
            .to_owned(),
    ]);
    if let (true, Some(file)) = (plan.data.validation_is_public, &plan.data.validation) {
        let file = file.display();
        assumptions.push(format!("{file} is public and does not depend on the training file"));
    }
    // That no row was skipped is also information about the data. With a declared number of units,
    // a skipped row is one unit less, which the guarantee covers.
    if plan.data.on_bad_row == OnBadRow::Skip && plan.declared_units().is_none() {
        assumptions.push(format!(
            "the number of skipped rows of the training file ({}), which have a different number \
             of fields than the header or are not JSON, is public",
            prepared.data.skipped
        ));
    }
    if let (true, Some(labels)) = (prepared.labels_were_found, &prepared.data.labels) {
        assumptions.push(of_found_labels(plan, labels));
    }
    let classes = prepared.classes.as_ref();
    assumptions.extend(classes.and_then(Classes::assumption));
    assumptions.extend(of_method);
    if plan.training.dropout {
        assumptions.push(
            "dropout masks, which are hashed from a secret number and not drawn one by one, reveal \
             nothing about each other"
                .to_owned(),
        );
    }
    assumptions
}
