//! The live view of a run in this process.

use super::model::Live;
use super::screen::{Wish, show};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A view drawn by its own thread, so that keys work while a step is computed.
pub struct View {
    live: Arc<Mutex<Live>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl View {
    /// Takes the terminal, and draws on it until the view is dropped or the user leaves it.
    pub fn open(live: Live) -> Self {
        let (live, over) = (Arc::new(Mutex::new(live)), Arc::new(AtomicBool::new(false)));
        let (shown, ended) = (Arc::clone(&live), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            let wish = show(|| {
                let live = shown.lock().unwrap_or_else(PoisonError::into_inner);
                (!ended.load(Ordering::Relaxed)).then(|| live.clone())
            });
            // While the view is drawn, Ctrl-C is a key, not a signal. If the view cannot be drawn,
            // the progress bar is used.
            if let Ok(Some(Wish::Stop)) = wish {
                let _ = signal_hook::low_level::raise(signal_hook::consts::SIGINT);
            }
        });
        Self { live, over, thread: Some(thread) }
    }

    /// Whether it is still visible.
    pub fn is_open(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Changes what is shown.
    pub fn tell(&self, change: impl FnOnce(&mut Live)) {
        change(&mut self.live.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for View {
    /// Restores the terminal.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The terminal was restored even if it panicked.
            let _ = thread.join();
        }
    }
}
