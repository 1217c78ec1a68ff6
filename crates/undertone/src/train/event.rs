//! Training events, which a callback receives.

use crate::data::Dataset;
use crate::plan::Plan;
use undertone_run::{ParameterCounts, Record, Resolved, Throughput};

/// A training event.
#[derive(Debug)]
pub enum TrainingEvent<'a> {
    /// Model and data are loaded and the noise is calibrated; nothing has been released yet.
    Loaded {
        plan: &'a Plan,
        resolved: &'a Resolved,
        data: &'a Dataset,
        /// Whether the label names were read from the training file.
        labels_were_found: bool,
        parameters: ParameterCounts,
    },
    /// Something that matters and stops nothing.
    Warning { message: &'a str },
    /// How the sums of several ranks are added up, where they compute on GPUs.
    Sums { told: &'a str },
    /// The relevance map of one more example was computed.
    Relevance { done: usize, examples: usize },
    /// The gradients of some public examples, for weights, were computed.
    PublicGradients { done: usize, examples: usize },
    /// A step of the adaptation, on public data or by DP-SGD, was taken.
    Adaptation { done: u64, steps: u64 },
    /// Model and data are loaded, the noise is calibrated, and training begins.
    Ready {
        /// Steps and calibrated noise multipliers.
        resolved: &'a Resolved,
        /// Number of examples in the training file.
        examples: usize,
        /// Number of its rows that were left out because they cannot be read.
        skipped: u64,
        parameters: ParameterCounts,
        /// Steps that a resumed run has already taken.
        done: u64,
        /// Steps of the whole run.
        steps: u64,
    },
    /// A step was taken.
    Step {
        /// Its line in metrics.jsonl.
        record: &'a Record,
        /// Throughput since the process started.
        throughput: Throughput,
        /// ε spent so far.
        epsilon: Option<SpentEpsilon>,
    },
}

/// ε that a run has spent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpentEpsilon {
    /// A certified upper bound.
    pub epsilon: f64,
    /// The step that it is of: the last one taken, except in paper mode, where ε has to be computed
    /// from the ledger.
    pub step: u64,
}
