//! Errors of planning and training. Each message is one sentence that says what to do.

use std::path::Path;

/// The reason why a run did not start, continue or finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error in the run file or the run folder.
    #[error(transparent)]
    Run(#[from] undertone_run::Error),
    /// Trainable parameters got no gradient: a layer is not connected to the loss, so the run would
    /// be useless.
    #[error(
        "these parameters get no gradient in the first steps: {0}; training cannot change them (a \
         learning rate that is far too high has the same effect)"
    )]
    NotMoved(String),
    /// A parameter has non-finite values, so the model is useless.
    #[error(
        "{0} is no longer finite, so the model was not saved: lower the learning rate (and that of \
         the adaptation, if any)"
    )]
    NotFinite(String),
    /// The run was asked to stop. It has a checkpoint and can be resumed.
    #[error("the run was stopped after step {step} of {steps}")]
    Stopped { step: u64, steps: u64 },
    /// The disk of the run folder is full. Once there is space, the run can be resumed.
    #[error("{source}: the disk is full, and the run needs about {megabytes} MB")]
    FullDisk {
        /// The write that failed.
        source: Box<Self>,
        /// Upper bound on the free space that the rest of the run needs.
        megabytes: u64,
    },
    /// The system provided no randomness for the noise secret.
    #[error("the operating system provides no random numbers ({0}), so no private run can start")]
    NoRandomness(std::io::Error),
    /// An error in communicating with the other ranks.
    #[error(transparent)]
    Ranks(#[from] crate::collective::Error),
    /// An error in the data.
    #[error(transparent)]
    Data(#[from] crate::data::Error),
    /// An error in the model.
    #[error(transparent)]
    Model(#[from] crate::model::Error),
    /// An error from the accountant or the ledger.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::Error),
}

impl Error {
    /// An error for parameters without a gradient, listing the first few by name.
    pub(crate) fn not_moved(names: &[String]) -> Self {
        const NAMED: usize = 3;
        let mut list = names[..names.len().min(NAMED)].join(", ");
        if names.len() > NAMED {
            list += &format!(" and {} more", names.len() - NAMED);
        }
        Self::NotMoved(list)
    }

    /// An error for a mistake in the run file.
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

/// The result of planning or training.
pub type Result<T> = std::result::Result<T, Error>;

/// Whether the error was caused by a disk or quota that is full.
pub fn is_of_full_disk(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let mut next = Some(error);
    while let Some(error) = next {
        let of_ledger = error.downcast_ref::<undertone_accounting::SystemError>();
        let of_file = error.downcast_ref::<std::io::Error>();
        let kind = of_ledger.map(|e| e.kind()).or_else(|| Some(of_file?.kind()));
        if kind.is_some_and(|kind| [FileTooLarge, QuotaExceeded, StorageFull].contains(&kind)) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Whether the error was caused by the machine (a full disk, too many open files) and not by the
/// request.
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
