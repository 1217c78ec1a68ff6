//! Why the ranks of a run cannot go on together.

/// Why the ranks of a run cannot go on together.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank has ended, or was never there.
    #[error("rank {rank} on {host} {why}, and all ranks stop")]
    Lost { rank: usize, host: String, why: String },
    /// The ranks were started in a way that does not go together.
    #[error("{0}")]
    Refused(String),
    /// The system could not do what was asked of it.
    #[error("{0}")]
    System(String),
}

impl Error {
    /// The ranks do not call the same collectives in the same order.
    pub(crate) fn out_of_step() -> Self {
        Self::System("the ranks exchange different things: start all of them again".to_owned())
    }

    /// Whether the machines failed, rather than what was asked for.
    pub fn is_of_system(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

/// A result of what ranks do together.
pub type Result<T> = std::result::Result<T, Error>;
