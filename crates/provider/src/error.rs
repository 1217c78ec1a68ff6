//! Errors of owners and providers, in one sentence each.

use std::path::Path;

/// An error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid input, which the user can fix.
    #[error("{0}")]
    Mistake(String),
    /// A failure of the other side, the network or the machine; the same command may work later.
    #[error("{0}")]
    Failed(String),
    /// The model or the plan.
    #[error(transparent)]
    Train(#[from] undertone::Error),
    /// The data.
    #[error(transparent)]
    Data(#[from] undertone::data::Error),
    /// The accountant or a ledger.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::Error),
    /// A file.
    #[error(transparent)]
    Run(#[from] undertone_run::Error),
    /// The database.
    #[error("the store failed: {0}")]
    Store(#[from] rusqlite::Error),
}

impl From<undertone_postgres::Error> for Error {
    fn from(error: undertone_postgres::Error) -> Self {
        match error {
            undertone_postgres::Error::Mistake(sentence) => Self::Mistake(sentence),
            other => Self::Failed(format!("the store failed: {other}")),
        }
    }
}

impl Error {
    /// An error that the user can fix.
    pub fn mistake(sentence: impl Into<String>) -> Self {
        Self::Mistake(sentence.into())
    }

    /// A failure of the machine or the other side.
    pub fn failed(sentence: impl Into<String>) -> Self {
        Self::Failed(sentence.into())
    }

    /// A failure to read or write a file.
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let wrap = undertone_run::Error::io(path);
        move |source| Self::Run(wrap(source))
    }

    /// Whether the machine, the network or the other side failed, as opposed to invalid input.
    pub fn is_of_system(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Store(_))
    }
}

/// A result of an owner or a provider.
pub type Result<T> = std::result::Result<T, Error>;
