//! Errors that stop the ranks of a run.

/// The reason why the ranks of a run cannot continue together.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank has ended, or never joined.
    #[error("rank {rank} on {host} {why}, and all ranks stop")]
    Lost { rank: usize, host: String, why: String },
    /// The ranks were started with settings that do not match.
    #[error("{0}")]
    Refused(String),
    /// The system failed to do what was requested.
    #[error("{0}")]
    System(String),
}

impl Error {
    /// The ranks do not call the same collectives in the same order.
    pub(crate) fn out_of_step() -> Self {
        Self::System("the ranks are out of step: restart all of them".to_owned())
    }

    /// Whether the error was caused by the machines and not by the request.
    pub fn is_of_system(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

/// The result of a collective operation.
pub type Result<T> = std::result::Result<T, Error>;
