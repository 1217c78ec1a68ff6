//! The folder of private statistics.

use std::path::{Path, PathBuf};

/// Names of the files that `undertone stats` writes.
#[derive(Clone, Debug)]
pub struct StatisticsPaths {
    folder: PathBuf,
}

impl StatisticsPaths {
    /// The files of this folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The statistics.
    pub fn statistics(&self) -> PathBuf {
        self.folder.join("statistics.json")
    }

    /// Their ledger.
    pub fn ledger(&self) -> PathBuf {
        self.folder.join("ledger.jsonl")
    }
}
