//! Temporary runs that only produce a figure. Their folders contain models of private rows, and are
//! deleted.

use crate::failure::{Failure, Outcome};
use crate::stop::Stop;
use std::io::ErrorKind;
use std::path::Path;
use undertone::Plan;
use undertone::collective::Ranks;
use undertone::tensor::Device;
use undertone::train::{Error, Start, TrainingEvent, train_until};
use undertone_run::Summary;

/// Runs `work` with an empty folder, which is deleted before and after.
pub fn within<T>(folder: &Path, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    clear(folder)?;
    let done = work();
    clear(folder)?;
    done
}

/// Deletes a folder, if it exists.
pub fn clear(folder: &Path) -> Outcome {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Failure::write(folder, e)),
        _ => Ok(()),
    }
}

/// Trains a model in the folder `out`.
pub fn train(plan: Plan, out: &Path, device: &Device, stop: &Stop) -> Outcome<Summary> {
    let (device, ranks) = (device.clone(), Ranks::alone());
    let start = Start { plan, out, resume: false, device, data: None, ranks, tape: None };
    let trained = train_until(&stop.asked, start, &mut |event: TrainingEvent| {
        if matches!(event, TrainingEvent::Ready { .. }) {
            stop.steps_begin();
        }
    });
    match trained {
        Err(Error::Stopped { .. }) => {
            Err(Failure::Stopped("stopped while evaluating; evaluate again".to_owned()))
        }
        done => Ok(done?),
    }
}
