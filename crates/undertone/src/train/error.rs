//! What can go wrong with a run, in one sentence each that says what to do.

use std::path::{Path, PathBuf};

/// Why a run did not begin, go on or end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The run file is not right.
    #[error("{0}")]
    Plan(String),
    /// The run's folder is not what it should be.
    #[error("{path}: {problem}", path = path.display())]
    Folder {
        /// The folder, or a file in it.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// Parameters that training should change got no gradient: a layer is not connected, and the
    /// run would be worth nothing.
    #[error(
        "after the first step these parameters have not moved: {0}; the model cannot be trained in \
         this way"
    )]
    NotMoved(String),
    /// No secret for the noise.
    #[error("the system gives no random numbers ({0}), without which no private run can begin")]
    NoRandomness(std::io::Error),
    /// The data.
    #[error(transparent)]
    Data(#[from] crate::data::Error),
    /// The model.
    #[error(transparent)]
    Model(#[from] crate::model::Error),
    /// The accountant or the ledger.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::Error),
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    pub(super) fn plan(sentence: impl Into<String>) -> Self {
        Self::Plan(sentence.into())
    }

    pub(super) fn folder(path: &Path, problem: impl Into<String>) -> Self {
        Self::Folder { path: path.to_owned(), problem: problem.into() }
    }

    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// A result of this room.
pub type Result<T> = std::result::Result<T, Error>;
