//! The state in which earlier sweeps left a run.

use crate::cells::Run;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};
use undertone::Plan;
use undertone_run::{FinishedRun, RunPaths, Summary};

/// The file that a sweep keeps locked.
const LOCK: &str = "sweep.lock";

/// The content of a run's folder.
#[derive(Debug)]
pub enum State {
    /// Nothing to resume.
    New,
    /// An interrupted run.
    Begun,
    /// The run, finished: its summary.
    Finished(Box<Summary>),
    /// A seeded run of another plan, which can be replaced.
    Stale,
    /// A run of another plan without a seed. Its ledger records what was released and must be kept.
    Precious,
    /// A finished run with contradictory files, and the contradiction.
    Contradictory(String),
}

/// Determines the state of a run's folder.
pub fn look(folder: &Path, run: &Run) -> State {
    let paths = RunPaths::new(folder);
    let plan = paths.plan();
    if !plan.exists() {
        return State::New;
    }
    let existing = Plan::read(&plan, &[]).ok();
    if existing.as_ref() != Some(&run.plan) {
        // An unreadable folder could have been anything.
        let seeded =
            existing.is_some_and(|plan| plan.training.seed.is_some() || !plan.is_private());
        return if seeded { State::Stale } else { State::Precious };
    }
    if !paths.is_finished() {
        return State::Begun;
    }
    match FinishedRun::read(folder) {
        Ok(run) => State::Finished(Box::new(run.summary)),
        Err(e) => State::Contradictory(e.to_string()),
    }
}

/// Waits for a run left behind by a killed sweep, which ends as soon as it notices. Returns whether
/// it ended.
pub fn wait_until_free(folder: &Path) -> bool {
    const PATIENCE: Duration = Duration::from_secs(30);
    let Ok(lock) = OpenOptions::new().write(true).open(RunPaths::new(folder).lock()) else {
        return true;
    };
    let start = Instant::now();
    while lock.try_lock().is_err() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

/// Whether a sweep has written into the folder before.
pub fn is_of_sweep(folder: &Path) -> bool {
    folder.join(LOCK).exists()
}

/// Locks a sweep's folder until dropped: exclusively, or shared with other shares of the sweep.
pub fn hold(folder: &Path, alone: bool) -> std::io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let lock = options.create(true).truncate(false).read(true).write(true);
    let lock = lock.open(folder.join(LOCK))?;
    let held = if alone { lock.try_lock() } else { lock.try_lock_shared() };
    Ok(held.is_ok().then_some(lock))
}
