//! Ctrl-C and `kill`: the first signal stops a run after the step in progress, a second ends the
//! process at once.

use crate::failure::STOPPED;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What signals ask for.
pub struct Stop {
    /// Whether to stop after the step in progress.
    pub asked: Arc<AtomicBool>,
    /// Whether the next signal ends the process at once.
    at_once: Arc<AtomicBool>,
}

impl Stop {
    /// Listens to signals. Until [`Stop::steps_begin`] one ends the process at once: no step is in
    /// progress, and what was released before is in the ledger. Where the system refuses to tell
    /// of signals, they do what they always do.
    pub fn listen() -> Self {
        let stop = Self { asked: Arc::default(), at_once: Arc::new(AtomicBool::new(true)) };
        for signal in [SIGINT, SIGTERM] {
            // In this order: whether to end at once is decided by what was before this signal.
            let at_once = Arc::clone(&stop.at_once);
            let _ = flag::register_conditional_shutdown(signal, STOPPED.into(), at_once);
            let _ = flag::register(signal, Arc::clone(&stop.asked));
            let _ = flag::register(signal, Arc::clone(&stop.at_once));
        }
        stop
    }

    /// From now on there is a step to finish.
    pub fn steps_begin(&self) {
        self.at_once.store(false, Ordering::SeqCst);
    }
}
