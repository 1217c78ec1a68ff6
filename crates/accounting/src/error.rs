//! Errors, each with the action that resolves it.

use std::path::PathBuf;

/// The reason why an accountant or a ledger refused a request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A parameter outside its domain.
    #[error("{name} is {value}, but must be {rule}")]
    Invalid {
        /// The parameter, in words.
        name: &'static str,
        /// The given value.
        value: String,
        /// The rule that the value must satisfy.
        rule: String,
    },

    /// The privacy loss of the composition exceeds what the numerical accountant can certify.
    #[error(
        "the privacy loss exceeds ε = {limit}, the most this accountant certifies; add noise, take \
         fewer steps or lower the sampling rate"
    )]
    LossTooLarge {
        /// The largest ε that can be certified.
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

    /// Private selections and exponential mechanisms are accounted for by Rényi DP only.
    #[error(
        "the {accountant} accountant does not cover private selections and exponential mechanisms; \
         use rdp"
    )]
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

    /// Users whose examples are sampled one by one are accounted for numerically, under add-remove
    /// adjacency.
    #[error(
        "{what} does not cover users whose examples are sampled one by one; use the prv accountant \
         and add-remove adjacency"
    )]
    SampledExamples {
        /// What does not cover them.
        what: &'static str,
    },

    /// A lower bound exceeds the upper bound: at least one of them is wrong.
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

    /// The composition cannot be certified.
    #[error("no certificate can be made: {why}")]
    NotCertifiable {
        /// What prevents it.
        why: &'static str,
    },

    /// The ledger file cannot be used or was changed.
    #[error("ledger {path}: {problem}")]
    Ledger {
        /// The ledger's file.
        path: PathBuf,
        /// What is wrong, and what to do about it.
        problem: String,
    },

    /// An operating system error while reading or writing the ledger, such as a full disk.
    #[error("ledger {path}: {doing} ({source})")]
    LedgerIo {
        /// The ledger's file.
        path: PathBuf,
        /// The operation that failed, and its consequence.
        doing: String,
        /// The operating system's error.
        source: SystemError,
    },
}

/// An operating system error that can be compared and cloned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct SystemError {
    text: String,
    kind: std::io::ErrorKind,
}

impl SystemError {
    /// Keeps the kind and the message of `error`.
    pub fn new(error: &std::io::Error) -> Self {
        Self { text: error.to_string(), kind: error.kind() }
    }

    /// The kind of failure.
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
