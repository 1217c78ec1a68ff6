//! Runs all runs of a sweep, several at a time if memory allows.

use crate::cells::Run;
use crate::child::Children;
use crate::metric::Metric;
use crate::progress::Progress;
use std::sync::{Condvar, Mutex, PoisonError};
use undertone_run::{Audit, Summary};

/// The outcome of a run, or why it failed.
pub type Outcome = Result<Finished, String>;

/// A finished run.
#[derive(Clone, Debug)]
pub struct Finished {
    pub summary: Box<Summary>,
    /// Results of the attacks, if the sweep has any.
    pub audit: Option<Audit>,
}

/// State shared by the workers.
struct Room {
    state: Mutex<Shared>,
    ended: Condvar,
    /// Whether the runs use this machine's memory.
    here: bool,
}

struct Shared {
    next: usize,
    active: usize,
    /// Largest peak memory of a finished run, in bytes.
    largest: u64,
}

/// Runs all runs in order, with the launch's concurrency, and returns their outcomes.
pub fn run_all(runs: &[&Run], children: &Children, metric: Metric) -> Vec<Outcome> {
    let room = Room {
        state: Mutex::new(Shared { next: 0, active: 0, largest: 0 }),
        ended: Condvar::new(),
        here: children.launch.launcher.is_empty(),
    };
    let progress = Progress::new(runs.len());
    let results: Vec<Mutex<Option<Outcome>>> = runs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..children.launch.jobs.min(runs.len()) {
            scope.spawn(|| {
                while let Some(next) = room.take(runs.len()) {
                    let job = progress.begin(&runs[next].name);
                    let result = children.run(runs[next], &|line| job.tell(line));
                    job.end(&outcome(&result, metric));
                    room.give_back(&result);
                    *results[next].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
            });
        }
    });
    progress.end();
    let taken = |result: Mutex<Option<Outcome>>| {
        result.into_inner().unwrap_or_else(PoisonError::into_inner)
    };
    results
        .into_iter()
        .map(|result| taken(result).unwrap_or_else(|| Err("was not done".into())))
        .collect()
}

fn outcome(result: &Outcome, metric: Metric) -> String {
    match result {
        Ok(run) => {
            let digits = metric.decimals();
            metric.of(run).map_or("done".to_owned(), |value| format!("{metric} {value:.digits$}"))
        }
        Err(sentence) => format!("failed: {sentence}"),
    }
}

impl Room {
    /// The next run, once there is enough memory for one as large as the largest so far. One run
    /// may always start.
    fn take(&self, all: usize) -> Option<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let too_large = |largest| available_memory().is_some_and(|free| free < largest);
        while self.here && state.active > 0 && too_large(state.largest) {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (state.next < all).then(|| {
            state.next += 1;
            state.active += 1;
            state.next - 1
        })
    }

    fn give_back(&self, result: &Outcome) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.active -= 1;
        let memory = result.as_ref().ok().and_then(|run| run.summary.peak_memory_bytes);
        state.largest = state.largest.max(memory.unwrap_or(0));
        self.ended.notify_all();
    }
}

/// Available memory, on Linux.
fn available_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
