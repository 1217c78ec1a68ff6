//! Runs for a figure alone: their folders hold models of private rows, and are removed.

use crate::failure::{Failure, Outcome};
use std::io::ErrorKind;
use std::path::Path;
use undertone::Plan;
use undertone::collective::Ranks;
use undertone::tensor::Device;
use undertone::train::{Start, train as train_run};
use undertone_run::Summary;

/// Does something in a new folder, which is removed before (a killed process may have left it) and
/// afterward.
pub fn within<T>(folder: &Path, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    clear(folder)?;
    let done = work();
    clear(folder)?;
    done
}

fn clear(folder: &Path) -> Outcome {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Failure::write(folder, e)),
        _ => Ok(()),
    }
}

/// Trains a model in the folder `out`.
pub fn train(plan: Plan, out: &Path, device: &Device) -> Outcome<Summary> {
    let (device, ranks) = (device.clone(), Ranks::alone());
    let start = Start { plan, out, resume: false, device, data: None, ranks, tape: None };
    Ok(train_run(start, &mut |_| ())?)
}
