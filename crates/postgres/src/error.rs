//! Errors, in one sentence each.

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid input, which the user can fix.
    #[error("{0}")]
    Mistake(String),
    /// A failure of the server or the network; the same command may work later.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// An error that the user can fix.
    pub fn mistake(sentence: impl Into<String>) -> Self {
        Self::Mistake(sentence.into())
    }
}

impl From<postgres::Error> for Error {
    fn from(error: postgres::Error) -> Self {
        Self::Failed(format!("PostgreSQL: {}", message_of(&error)))
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The database's error message in one line.
pub fn message_of(error: &postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return error.message().to_owned();
    }
    match std::error::Error::source(error) {
        Some(why) => format!("{error}: {why}"),
        None => error.to_string(),
    }
}
