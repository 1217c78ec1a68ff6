//! Why a run did not begin, go on or end, in one sentence each that says what to do.

use std::path::Path;

/// Why a run did not begin, go on or end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The run file or the run folder.
    #[error(transparent)]
    Run(#[from] undertone_run::Error),
    /// Trainable parameters got no gradient: a layer is not connected, and the run would be worth
    /// nothing.
    #[error(
        "these parameters get no gradient in the first steps: {0}; the model cannot be trained in \
         this way (a learning rate that is far too large does this too)"
    )]
    NotMoved(String),
    /// A parameter has values that are not finite: the model is worth nothing.
    #[error(
        "{0} is no longer finite, and the model is not saved: lower the learning rate, of the \
         adaptation too if there is one"
    )]
    NotFinite(String),
    /// The run was asked to stop. It has a checkpoint, and can be resumed.
    #[error("the run was stopped after step {step} of {steps}")]
    Stopped { step: u64, steps: u64 },
    /// No secret for the noise.
    #[error("the system gives no random numbers ({0}), without which no private run can begin")]
    NoRandomness(std::io::Error),
    /// The other processes of the run.
    #[error(transparent)]
    Ranks(#[from] crate::collective::Error),
    /// The data.
    #[error(transparent)]
    Data(#[from] crate::data::Error),
    /// The model.
    #[error(transparent)]
    Model(#[from] crate::model::Error),
    /// The accountant or the ledger.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::Error),
}

impl Error {
    /// Parameters without a gradient: the first few by name.
    pub(crate) fn not_moved(names: &[String]) -> Self {
        const NAMED: usize = 3;
        let mut told = names[..names.len().min(NAMED)].join(", ");
        if names.len() > NAMED {
            told += &format!(" and {} more", names.len() - NAMED);
        }
        Self::NotMoved(told)
    }

    /// A mistake in the run file.
    pub(crate) fn plan(sentence: impl Into<String>) -> Self {
        Self::Run(undertone_run::Error::run_file(sentence))
    }

    pub(crate) fn folder(path: &Path, problem: impl Into<String>) -> Self {
        Self::Run(undertone_run::Error::folder(path, problem))
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let wrap = undertone_run::Error::io(path);
        move |source| Self::Run(wrap(source))
    }
}

/// A result of planning or training.
pub type Result<T> = std::result::Result<T, Error>;

/// Whether the machine failed (a full disk, too many open files), rather than what was asked for.
pub fn is_of_system(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind;
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<undertone_accounting::SystemError>() {
            return true;
        }
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return !matches!(
                error.kind(),
                ErrorKind::NotFound
                    | ErrorKind::PermissionDenied
                    | ErrorKind::AlreadyExists
                    | ErrorKind::IsADirectory
                    | ErrorKind::NotADirectory
                    | ErrorKind::InvalidInput
                    | ErrorKind::InvalidData
                    | ErrorKind::InvalidFilename
                    | ErrorKind::UnexpectedEof
            );
        }
        next = error.source();
    }
    false
}
