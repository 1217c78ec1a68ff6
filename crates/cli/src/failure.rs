//! Why a command did not do what it was asked: one sentence for the user, and an exit code for
//! scripts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum Failure {
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::Error),
    /// The model, or what was asked of it, is not right.
    #[error(transparent)]
    Model(#[from] undertone::model::Error),
    #[error(transparent)]
    Data(#[from] undertone::data::Error),
    /// The run could not begin or go on.
    #[error(transparent)]
    Train(#[from] undertone::train::Error),
    /// The processes of a run did not come together.
    #[error(transparent)]
    Ranks(#[from] undertone::collective::Error),
    /// A run file or run folder is not right.
    #[error(transparent)]
    Run(#[from] undertone_run::Error),
    /// There is nothing to report, or it contradicts itself; or a chart could not be written.
    #[error(transparent)]
    Report(#[from] undertone_report::Error),
    /// An owner or a provider could not do what it was asked.
    #[error(transparent)]
    Provider(#[from] undertone_provider::Error),
    #[error(transparent)]
    Sweep(#[from] undertone_sweep::Error),
    /// The arguments do not go together, or name files that are not right.
    #[error("{0}")]
    Arguments(String),
    #[error("could not write {}: {why}", path.display())]
    Write { path: PathBuf, why: String },
    #[error("{failed} of {all} runs failed; the same command tries them again")]
    Runs { failed: usize, all: usize },
    /// The run was stopped by a signal, and can be resumed.
    #[error("{0}")]
    Stopped(String),
    /// An attack beat the guarantee.
    #[error("{0}")]
    Violation(String),
}

/// Exit code of a run that a signal stopped: what shells report for SIGINT.
pub const STOPPED: u8 = 130;

impl Failure {
    /// 2 for what the user can mend, 3 for a guarantee that was beaten, 130 for a run that a signal
    /// stopped, 1 for the rest.
    pub fn exit_code(&self) -> ExitCode {
        if undertone::is_of_system(self) {
            return ExitCode::from(1);
        }
        match self {
            Failure::Report(error) if error.is_of_system() => ExitCode::from(1),
            Failure::Sweep(error) if error.is_of_system() => ExitCode::from(1),
            Failure::Provider(error) if error.is_of_system() => ExitCode::from(1),
            Failure::Train(undertone::train::Error::Ranks(error)) | Failure::Ranks(error)
                if error.is_of_system() =>
            {
                ExitCode::from(1)
            }
            Failure::Accounting(_)
            | Failure::Arguments(_)
            | Failure::Model(_)
            | Failure::Data(_)
            | Failure::Provider(_)
            | Failure::Report(_)
            | Failure::Sweep(_)
            | Failure::Ranks(_)
            | Failure::Run(_)
            | Failure::Train(_) => ExitCode::from(2),
            Failure::Write { .. } | Failure::Runs { .. } => ExitCode::from(1),
            Failure::Violation(_) => ExitCode::from(3),
            Failure::Stopped(_) => ExitCode::from(STOPPED),
        }
    }

    /// Whether the machine failed, rather than what was asked for.
    pub fn is_of_system(&self) -> bool {
        self.exit_code() == ExitCode::from(1)
    }

    pub fn arguments(sentence: impl Into<String>) -> Failure {
        Failure::Arguments(sentence.into())
    }

    pub fn write(path: &Path, why: impl std::fmt::Display) -> Failure {
        Failure::Write { path: path.to_path_buf(), why: why.to_string() }
    }
}

/// The result of every command.
pub type Outcome<T = ()> = Result<T, Failure>;
