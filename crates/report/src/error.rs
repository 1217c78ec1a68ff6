//! Why there is no report.

use std::path::{Path, PathBuf};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder holds no finished run.
    #[error("{} is no folder of a finished run; it has no {file}", folder.display())]
    Unfinished {
        /// The folder.
        folder: PathBuf,
        /// What it should have.
        file: &'static str,
    },
    /// A file is not what a run writes.
    #[error("{}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The ledger proves nothing, or its ε cannot be computed.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::Error),
    /// A chart could not be drawn.
    #[error("a chart could not be drawn: {0}")]
    Drawing(String),
    /// A chart could not be written into its file.
    #[error("could not write {}: {why}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
}

impl Error {
    /// Whether the system failed, rather than what the user asked for.
    pub fn is_of_system(&self) -> bool {
        matches!(self, Self::Write { .. })
    }

    pub(crate) fn write(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Write { path: path.to_owned(), why: why.to_string() }
    }

    pub(crate) fn damaged(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::Damaged { path: path.to_owned(), problem: problem.to_string() }
    }
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;
