//! Progress of reading a file, reported to an observer.

use std::path::Path;
use std::sync::OnceLock;

/// Called with the file, the amount read so far and the total (bytes; for Parquet, rows). Both are
/// equal once the file has been read.
pub type ReadingObserver = fn(file: &Path, done: u64, total: u64);

static OBSERVER: OnceLock<ReadingObserver> = OnceLock::new();

/// Installs this process's observer for files read with `Options::progress`. Only the first call
/// has an effect.
pub fn observe_reading(observer: ReadingObserver) {
    // A second observer is ignored, as documented.
    let _ = OBSERVER.set(observer);
}

/// Calls the observer, if there is one.
pub(crate) fn report(file: &Path, done: u64, total: u64) {
    if let Some(observer) = OBSERVER.get() {
        observer(file, done, total);
    }
}
