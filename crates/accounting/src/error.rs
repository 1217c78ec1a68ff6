//! Everything that can go wrong, each with what to do about it.

use std::path::PathBuf;

/// Why an answer could not be given.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A parameter outside its domain.
    #[error("{name} is {value}, but must be {rule}")]
    Invalid {
        /// The parameter, as a person would name it.
        name: &'static str,
        /// What was given.
        value: String,
        /// What must hold.
        rule: String,
    },

    /// The composition loses more privacy than the numerical accountant certifies.
    #[error(
        "the privacy loss exceeds ε = {limit}, the most this accountant certifies; add noise, take \
         fewer steps or lower the sampling rate"
    )]
    LossTooLarge {
        /// The largest ε that is certified.
        limit: f64,
    },

    /// The grid that would be needed does not fit into the memory and time allowed.
    #[error(
        "a certified answer needs a grid of {needed:.1e} points, more than the {limit:.1e} allowed \
         for {parts} different parts; merge parts with equal parameters, or ask the rdp accountant"
    )]
    GridTooLarge {
        /// Points needed.
        needed: f64,
        /// Points allowed.
        limit: f64,
        /// Different parts in the composition.
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

    /// The accountant does not know this kind of event or adjacency.
    #[error("the {accountant} accountant does not cover {what}; use the prv accountant")]
    Unsupported {
        /// The accountant that was asked.
        accountant: &'static str,
        /// What it does not cover.
        what: &'static str,
    },

    /// The ledger on disk is not what was written.
    #[error("ledger {path}: {problem}")]
    Ledger {
        /// The ledger's file.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
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

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;
