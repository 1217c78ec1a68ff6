//! Errors of the commands: one sentence for the user, and an exit code for scripts.

use std::process::ExitCode;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum Failure {
    /// An error of the owner's or the provider's side.
    #[error(transparent)]
    Provider(#[from] undertone_provider::Error),
    /// An invalid model or request.
    #[error(transparent)]
    Model(#[from] undertone::model::Error),
    /// An invalid run file or run folder.
    #[error(transparent)]
    Run(#[from] undertone_run::Error),
    /// Contradictory arguments, or arguments that name invalid files.
    #[error("{0}")]
    Arguments(String),
}

impl Failure {
    /// 2 for errors that the user can fix, 1 otherwise.
    pub fn exit_code(&self) -> ExitCode {
        let of_system = match self {
            Self::Provider(error) => error.is_of_system(),
            _ => false,
        };
        match of_system || undertone::is_of_system(self) {
            true => ExitCode::from(1),
            false => ExitCode::from(2),
        }
    }

    pub fn arguments(sentence: impl Into<String>) -> Self {
        Self::Arguments(sentence.into())
    }
}

/// The result of every command.
pub type Outcome<T = ()> = Result<T, Failure>;
