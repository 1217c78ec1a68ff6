//! Errors of run files and run folders. Each message is one sentence that says what to do.

use std::path::{Path, PathBuf};

/// Why a run file or run folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The run file is invalid.
    #[error("{0}")]
    RunFile(String),
    /// A folder, or a file in it, is missing or invalid.
    #[error("{path}: {problem}", path = path.display())]
    Folder {
        /// Path of the folder or file.
        path: PathBuf,
        /// What is wrong and what to do about it.
        problem: String,
    },
    /// The ledger is invalid, or its ε cannot be computed.
    #[error(transparent)]
    Ledger(#[from] undertone_accounting::Error),
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The underlying I/O error.
        source: std::io::Error,
    },
}

impl Error {
    /// Creates an error for an invalid run file.
    pub fn run_file(sentence: impl Into<String>) -> Self {
        Self::RunFile(sentence.into())
    }

    /// Creates an error for a folder or file that cannot be used.
    pub fn folder(path: &Path, problem: impl Into<String>) -> Self {
        Self::Folder { path: path.to_owned(), problem: problem.into() }
    }

    /// For `map_err`: attaches the path to an I/O error.
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;
