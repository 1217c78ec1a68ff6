//! Reasons why a sweep cannot produce its table.

use std::path::{Path, PathBuf};

/// The reason why there is no table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The sweep file, the plan of a cell or a data file is invalid.
    #[error("{0}")]
    Mistake(String),
    /// Another process is using the sweep's folder.
    #[error(
        "{} is in use by another sweep; wait for it, or choose another folder with --out",
        folder.display()
    )]
    InUse { folder: PathBuf },
    /// The folder of a run holds a private run of another plan, whose ledger must not be lost.
    #[error(
        "{} holds a private run of another plan, which is kept; choose another folder with --out",
        folder.display()
    )]
    PrivateRun { folder: PathBuf },
    /// A file or folder of the sweep could not be written.
    #[error("could not write {}: {why}", path.display())]
    Write { path: PathBuf, why: String },
    /// A private selection with unfinished runs.
    #[error(
        "{failed} of the runs failed ({why}), so nothing was selected; run the same command again \
         to continue"
    )]
    Unfinished { failed: usize, why: String },
    /// The cost of a selection could not be computed, or its ledger could not be written.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::Error),
    /// The data or the model of a selection could not be read.
    #[error(transparent)]
    Train(#[from] undertone::train::Error),
    /// The chart could not be drawn.
    #[error(transparent)]
    Chart(#[from] undertone_report::Error),
}

impl Error {
    pub(crate) fn mistake(sentence: impl Into<String>) -> Self {
        Self::Mistake(sentence.into())
    }

    pub(crate) fn write(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Write { path: path.to_owned(), why: why.to_string() }
    }

    /// Whether the system failed, as opposed to invalid input.
    pub fn is_of_system(&self) -> bool {
        match self {
            Self::Write { .. } | Self::Unfinished { .. } => true,
            Self::Chart(error) => error.is_of_system(),
            _ => false,
        }
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;
