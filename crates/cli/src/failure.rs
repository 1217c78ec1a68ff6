//! Errors of commands: one sentence for the user, and an exit code for scripts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thiserror::Error;
use undertone_terminal::STOPPED;

#[derive(Debug, Error)]
pub enum Failure {
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::Error),
    /// The model is invalid, or does not support the request.
    #[error(transparent)]
    Model(#[from] undertone::model::Error),
    #[error(transparent)]
    Data(#[from] undertone::data::Error),
    /// The run could not start or continue.
    #[error(transparent)]
    Train(#[from] undertone::train::Error),
    /// The processes of a distributed run could not connect or agree.
    #[error(transparent)]
    Ranks(#[from] undertone::collective::Error),
    /// A run file or run folder is invalid.
    #[error(transparent)]
    Run(#[from] undertone_run::Error),
    /// There is nothing to report, a run contradicts itself, or a plot could not be written.
    #[error(transparent)]
    Report(#[from] undertone_report::Error),
    /// A budget does not allow the run, or its register cannot be used.
    #[error(transparent)]
    Register(#[from] undertone_register::Error),
    #[error(transparent)]
    Sweep(#[from] undertone_sweep::Error),
    /// The arguments are inconsistent, or name unsuitable files.
    #[error("{0}")]
    Arguments(String),
    #[error("could not write {}: {why}", path.display())]
    Write { path: PathBuf, why: String },
    #[error("{failed} of {all} runs failed; run the same command again to retry them")]
    Runs { failed: usize, all: usize },
    /// The disk of a run is full.
    #[error("{source}; free some, then continue with: {resume}")]
    FullDisk { source: undertone::train::Error, resume: String },
    /// The run was stopped by a signal, and can be resumed.
    #[error("{0}")]
    Stopped(String),
    /// The program does not work on this machine.
    #[error("{failed} of {all} checks failed, so runs on this machine cannot be trusted")]
    Installation { failed: usize, all: usize },
    /// An attack refuted the guarantee.
    #[error("{0}")]
    Violation(String),
}

impl Failure {
    /// The exit code of the program for this failure.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// 2 for errors that the user can fix, 3 for a refuted guarantee, 130 for a run stopped by a
    /// signal, 1 otherwise.
    pub fn code(&self) -> u8 {
        if undertone::is_of_system(self) {
            return 1;
        }
        match self {
            Failure::Report(error) if error.is_of_system() => 1,
            Failure::Sweep(error) if error.is_of_system() => 1,
            Failure::Train(undertone::train::Error::Ranks(error)) | Failure::Ranks(error)
                if error.is_of_system() =>
            {
                1
            }
            Failure::Accounting(_)
            | Failure::Arguments(_)
            | Failure::Model(_)
            | Failure::Data(_)
            | Failure::Report(_)
            | Failure::Register(_)
            | Failure::Sweep(_)
            | Failure::Ranks(_)
            | Failure::Run(_)
            | Failure::Train(_) => 2,
            Failure::Write { .. }
            | Failure::Runs { .. }
            | Failure::FullDisk { .. }
            | Failure::Installation { .. } => 1,
            Failure::Violation(_) => 3,
            Failure::Stopped(_) => STOPPED,
        }
    }

    /// Whether the system failed, rather than the request being invalid.
    pub fn is_of_system(&self) -> bool {
        self.code() == 1
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
