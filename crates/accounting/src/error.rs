//! Errors, each with what to do about it.

use std::path::PathBuf;

/// Why an accountant or a ledger refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A parameter outside its domain.
    #[error("{name} is {value}, but must be {rule}")]
    Invalid {
        /// The parameter, as a person would name it.
        name: &'static str,
        /// The given value.
        value: String,
        /// What must hold.
        rule: String,
    },

    /// The privacy loss of the composition exceeds what the numerical accountant certifies.
    #[error(
        "the privacy loss exceeds ε = {limit}, the most this accountant certifies; add noise, take \
         fewer steps or lower the sampling rate"
    )]
    LossTooLarge {
        /// The largest ε that is certified.
        limit: f64,
    },

    /// The grid of the numerical accountant would exceed the memory and time allowed.
    #[error(
        "a certified answer needs a grid of {needed:.1e} points, more than the {limit:.1e} allowed \
         for {parts} different parts; merge parts with equal parameters, or ask the rdp accountant"
    )]
    GridTooLarge {
        /// Number of grid points needed.
        needed: f64,
        /// Number of grid points allowed.
        limit: f64,
        /// Number of different parts in the composition.
        parts: usize,
    },

    /// No noise multiplier in the certified range meets the target.
    #[error("no noise multiplier between {low} and {high} meets the target; {advice}")]
    Unreachable {
        /// Smallest noise multiplier tried.
        low: f64,
        /// Largest noise multiplier tried.
        high: f64,
        /// What to change.
        advice: &'static str,
    },

    /// Private selection is accounted for by Rényi DP only.
    #[error("the {accountant} accountant does not cover private selection; use rdp")]
    OnlyRdp {
        /// Name of the accountant.
        accountant: &'static str,
    },

    /// The accountant does not support this kind of event or adjacency.
    #[error("the {accountant} accountant does not cover {what}; use the prv accountant")]
    Unsupported {
        /// Name of the accountant.
        accountant: &'static str,
        /// What it does not support.
        what: &'static str,
    },

    /// A lower bound came out above the upper bound: at least one of them is wrong.
    #[error(
        "the lower bound {lower} exceeds the upper bound {upper}: the accountant has a bug, and no \
         value is certified; please report the settings"
    )]
    Crossed {
        /// The lower bound.
        lower: f64,
        /// The upper bound.
        upper: f64,
    },

    /// No certificate can be made.
    #[error("no certificate can be made: {why}")]
    NotCertifiable {
        /// What prevents it.
        why: &'static str,
    },

    /// The ledger file cannot be used, or was changed.
    #[error("ledger {path}: {problem}")]
    Ledger {
        /// The ledger's file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },

    /// The system failed while the ledger was read or written, such as by a full disk.
    #[error("ledger {path}: {doing} ({source})")]
    LedgerIo {
        /// The ledger's file.
        path: PathBuf,
        /// What could not be done, and what follows from it.
        doing: String,
        /// The system's error.
        source: SystemError,
    },
}

/// A failure of the operating system that can be compared and cloned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct SystemError {
    text: String,
    kind: std::io::ErrorKind,
}

impl SystemError {
    /// What the operating system said.
    pub fn new(error: &std::io::Error) -> Self {
        Self { text: error.to_string(), kind: error.kind() }
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> std::io::ErrorKind {
        self.kind
    }
}

impl Error {
    pub(crate) fn invalid(
        name: &'static str,
        value: impl std::fmt::Display,
        rule: impl Into<String>,
    ) -> Self {
        Error::Invalid { name, value: value.to_string(), rule: rule.into() }
    }
}

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
