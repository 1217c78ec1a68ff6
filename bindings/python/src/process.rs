//! Process-wide rules: no work after a fork, one run at a time, and Ctrl-C.

use crate::errors::user_error;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use undertone::tensor::CpuLevel;

/// The process that started the engine's threads; 0 before that.
static STARTED_IN: AtomicU32 = AtomicU32::new(0);

/// Refuses to compute in a forked process, which lacks the engine's threads and would wait for them
/// forever.
pub fn check() -> PyResult<()> {
    let own = std::process::id();
    let started_in = match STARTED_IN.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed)
    {
        Ok(_) => own,
        Err(other) => other,
    };
    if started_in != own {
        return Err(user_error(
            "this process was forked from one in which undertone had already computed, and does \
             not have its threads; start processes with multiprocessing.get_context(\"spawn\")",
        ));
    }
    CpuLevel::from_environment().map_err(|unusable| user_error(unusable.to_string()))?;
    Ok(())
}

static IS_BUSY: AtomicBool = AtomicBool::new(false);

/// The right to train or attack, which only one thread has at a time, because each run uses all
/// cores.
#[derive(Debug)]
pub struct Turn(());

impl Turn {
    /// Takes the turn, or fails if another thread has it.
    pub fn take() -> PyResult<Self> {
        check()?;
        if IS_BUSY.swap(true, Ordering::AcqRel) {
            return Err(user_error(
                "another thread of this process is training or auditing, with all cores; wait for \
                 it, or use a process of its own",
            ));
        }
        Ok(Self(()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IS_BUSY.store(false, Ordering::Release);
    }
}

/// Interval at which Python's signals are checked.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs `work` in a thread of its own, without the interpreter's lock, while this thread waits for
/// signals, which only Python's main thread receives. A signal sets `stop`; its exception is
/// returned beside the result.
pub fn interruptible<T: Send>(
    py: Python,
    stop: &AtomicBool,
    work: impl FnOnce() -> T + Send,
) -> (T, Option<PyErr>) {
    let mut interruption = None;
    let result = thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            py.detach(|| thread::sleep(LOOK_EVERY));
            if let Err(error) = py.check_signals() {
                stop.store(true, Ordering::SeqCst);
                interruption.get_or_insert(error);
            }
        }
        worker.join()
    });
    match result {
        Ok(result) => (result, interruption),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
