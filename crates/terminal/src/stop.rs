//! Handling of SIGINT and SIGTERM: the first signal stops a run after the current step, a second
//! one ends the process immediately.

use crate::STOPPED;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum delay between a signal and its announcement.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// State of signal handling. By default, there is none, and others set `asked`.
#[derive(Default)]
pub struct Stop {
    /// Whether to stop after the current step.
    pub asked: Arc<AtomicBool>,
    /// Whether the next signal ends the process immediately.
    at_once: Arc<AtomicBool>,
}

impl Stop {
    /// Installs the signal handlers. Until [`Stop::steps_begin`], a signal ends the process
    /// immediately: no step is in progress, and earlier releases are in the ledger. If the handlers
    /// cannot be installed, signals keep their default effect.
    pub fn listen() -> Self {
        let stop = Self { asked: Arc::default(), at_once: Arc::new(AtomicBool::new(true)) };
        for signal in [SIGINT, SIGTERM] {
            // The order matters: whether to exit immediately depends on the state before this
            // signal.
            let at_once = Arc::clone(&stop.at_once);
            let _ = flag::register_conditional_shutdown(signal, STOPPED.into(), at_once);
            let _ = flag::register(signal, Arc::clone(&stop.asked));
            let _ = flag::register(signal, Arc::clone(&stop.at_once));
        }
        stop
    }

    /// From now on, signals wait for the current step to finish.
    pub fn steps_begin(&self) {
        self.at_once.store(false, Ordering::SeqCst);
    }

    /// Calls `say` once, in a separate thread, immediately after the first signal that waits for a
    /// step to finish, because a step may take minutes. Ends when the value is dropped.
    pub fn announce(&self, say: impl FnOnce() + Send + 'static) -> Announcement {
        let over = Arc::new(AtomicBool::new(false));
        let (asked, ended) = (Arc::clone(&self.asked), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                if asked.load(Ordering::SeqCst) {
                    return say();
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        Announcement { over, thread: Some(thread) }
    }
}

/// Waits for a signal in order to announce it.
pub struct Announcement {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has already been reported and does not matter here.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_signal_is_announced_while_the_step_goes_on() {
        let stop = Stop::default();
        let (heard, hearing) = channel();
        let _announcement = stop.announce(move || heard.send(()).unwrap());
        assert!(hearing.recv_timeout(2 * LOOK_EVERY).is_err());
        stop.asked.store(true, Ordering::SeqCst);
        assert!(hearing.recv_timeout(Duration::from_secs(60)).is_ok());
    }

    #[test]
    fn without_a_signal_nothing_is_announced() {
        let (heard, hearing) = channel();
        drop(Stop::default().announce(move || heard.send(()).unwrap()));
        assert!(hearing.recv().is_err());
    }
}
