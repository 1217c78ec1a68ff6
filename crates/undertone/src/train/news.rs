//! What is told to whoever watches a run.

use super::plan::Resolved;
use super::record::Record;
use super::summary::{Counts, Throughput};

/// What is told to whoever watches.
#[derive(Debug)]
pub enum News<'a> {
    /// The relevance of one more example was computed.
    Relevance {
        /// How many were.
        done: usize,
        /// Of how many.
        examples: usize,
    },
    /// A step of the adaptation, on public data or by DP-SGD, was taken.
    Adaptation {
        /// How many were.
        done: u64,
        /// Of how many.
        steps: u64,
    },
    /// Everything is loaded and calibrated.
    Ready {
        /// What the plan came to.
        resolved: &'a Resolved,
        /// Examples in the training file.
        examples: usize,
        /// Numbers trained, and all.
        parameters: Counts,
        /// Steps already taken by the run that is resumed.
        done: u64,
        /// Steps in all.
        steps: u64,
    },
    /// A step was taken.
    Step {
        /// What was written down about it.
        record: &'a Record,
        /// Examples computed since the start, and for how long.
        throughput: Throughput,
        /// ε spent so far, when it was last computed.
        epsilon: Option<f64>,
    },
}
