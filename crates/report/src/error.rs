//! Errors of reports.

use std::path::{Path, PathBuf};

/// An error that prevents a report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder is not that of a finished run.
    #[error("{} is not the folder of a finished run: it has no {file}", folder.display())]
    Unfinished {
        folder: PathBuf,
        /// Name of the missing file.
        file: &'static str,
    },
    /// A file of the run folder cannot be read, or contradicts another one.
    #[error(transparent)]
    Run(#[from] undertone_run::Error),
    /// The ledger is invalid, or its ε cannot be computed.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::Error),
    /// A budget cannot be computed.
    #[error(transparent)]
    Register(#[from] undertone_register::Error),
    /// A chart could not be drawn.
    #[error("a chart could not be drawn: {0}")]
    Drawing(String),
    /// A chart file could not be written.
    #[error("could not write {}: {why}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        why: String,
    },
}

impl Error {
    /// Whether the failure was caused by the system, not by the request.
    pub fn is_of_system(&self) -> bool {
        matches!(self, Self::Write { .. })
    }

    pub(crate) fn write(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Write { path: path.to_owned(), why: why.to_string() }
    }
}

/// Result with a report error.
pub type Result<T> = std::result::Result<T, Error>;
