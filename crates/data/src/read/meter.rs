//! Reading progress, for progress bars.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared count of the bytes (for Parquet, the rows) read so far.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    done: Arc<AtomicU64>,
    total: u64,
}

impl Meter {
    pub(super) fn new(total: u64) -> Meter {
        Meter { done: Arc::default(), total }
    }

    pub(super) fn add(&self, amount: u64) {
        self.done.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}
