//! Process-wide rules: no work after a fork, one run at a time, and Ctrl-C.

use crate::errors::user_error;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
