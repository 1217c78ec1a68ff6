//! Errors: one sentence each, with what to do.

use std::path::Path;

/// Why the register refused a request, or could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request cannot be granted, or the register is damaged.
    #[error("{0}")]
    Refused(String),
    /// The accountant does not support the events.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::Error),
    /// A file could not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// The file, and what could not be done.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Error {
    /// A refusal.
    pub fn refused(sentence: impl Into<String>) -> Self {
        Self::Refused(sentence.into())
    }

    pub(crate) fn io<'a>(path: &'a Path, doing: &'a str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what: format!("register {} {doing}", path.display()), source }
    }
}

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
