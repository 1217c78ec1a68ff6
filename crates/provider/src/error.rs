//! Why an owner or a provider did not do what it was asked, in one sentence.

use std::path::Path;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for is not right, and can be mended.
    #[error("{0}")]
    Mistake(String),
    /// The other side, the network or the machine failed; the same command may work later.
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

impl Error {
    /// A mistake of the user's.
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

    /// Whether the machine, the network or the other side failed, rather than what was asked for.
    pub fn is_of_system(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Store(_))
    }
}

/// A result of an owner or a provider.
pub type Result<T> = std::result::Result<T, Error>;
