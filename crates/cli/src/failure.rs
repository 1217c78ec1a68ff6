//! Why a command did not do what it was asked.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One sentence for the user, and an exit code for scripts.
#[derive(Debug)]
pub enum Failure {
    /// The accountant refused.
    Accounting(undertone_accounting::Error),
    /// The model, or what was asked of it, is not right.
    Model(undertone::model::Error),
    /// The data are not right.
    Data(undertone::data::Error),
    /// The run could not begin or go on.
    Train(undertone::train::Error),
    /// There is nothing to report, or it contradicts itself.
    Report(undertone_report::Error),
    /// The arguments do not go together.
    Arguments(String),
    /// A file could not be written.
    Write(PathBuf, String),
    /// Some runs of a sweep failed.
    Runs(String),
    /// An attack beat the guarantee.
    Violation(String),
}

impl Failure {
    /// 2 for what the user can mend, 3 for a guarantee that was beaten, 1 for the rest.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Accounting(_)
            | Failure::Arguments(_)
            | Failure::Model(_)
            | Failure::Data(_)
            | Failure::Report(_)
            | Failure::Train(_) => ExitCode::from(2),
            Failure::Write(..) | Failure::Runs(_) => ExitCode::from(1),
            Failure::Violation(_) => ExitCode::from(3),
        }
    }

    pub fn arguments(sentence: impl Into<String>) -> Failure {
        Failure::Arguments(sentence.into())
    }

    pub fn write(path: &Path, why: impl std::fmt::Display) -> Failure {
        Failure::Write(path.to_path_buf(), why.to_string())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Failure::Accounting(error) => error.fmt(f),
            Failure::Model(error) => error.fmt(f),
            Failure::Data(error) => error.fmt(f),
            Failure::Train(error) => error.fmt(f),
            Failure::Report(error) => error.fmt(f),
            Failure::Arguments(sentence)
            | Failure::Runs(sentence)
            | Failure::Violation(sentence) => f.write_str(sentence),
            Failure::Write(path, why) => write!(f, "could not write {}: {why}", path.display()),
        }
    }
}

impl From<undertone_accounting::Error> for Failure {
    fn from(error: undertone_accounting::Error) -> Failure {
        Failure::Accounting(error)
    }
}

impl From<undertone::model::Error> for Failure {
    fn from(error: undertone::model::Error) -> Failure {
        Failure::Model(error)
    }
}

impl From<undertone::data::Error> for Failure {
    fn from(error: undertone::data::Error) -> Failure {
        Failure::Data(error)
    }
}

impl From<undertone::train::Error> for Failure {
    fn from(error: undertone::train::Error) -> Failure {
        Failure::Train(error)
    }
}

impl From<undertone_report::Error> for Failure {
    fn from(error: undertone_report::Error) -> Failure {
        Failure::Report(error)
    }
}

/// The result of every command.
pub type Outcome<T = ()> = Result<T, Failure>;
