//! Training events, passed to a callback.

use crate::data::Dataset;
use crate::plan::Plan;
use undertone_accounting::ledger::Ledger;
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
        /// The ledger that the run will have after its last release, if that is known.
        planned: Option<&'a Ledger>,
    },
    /// A problem that matters but does not stop the run.
    Warning { message: &'a str },
    /// How the sums of several ranks are reduced, if they compute on GPUs.
    Sums { message: &'a str },
    /// The relevance map of another example was computed.
    Relevance { done: usize, examples: usize },
    /// The gradients of some public examples, used for weights, were computed.
    PublicGradients { done: usize, examples: usize },
    /// A step of the adaptation, on public data or by DP-SGD, was taken.
    Adaptation { done: u64, steps: u64 },
    /// Model and data are loaded, the noise is calibrated, and training begins.
    Ready {
        /// Steps and calibrated noise multipliers.
        resolved: &'a Resolved,
        /// Number of examples in the training file.
        examples: usize,
        /// Number of rows that were skipped because they cannot be read.
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
        /// Peak memory of the run's matrices on the GPU so far; `None` on the CPU.
        gpu_memory_bytes: Option<u64>,
    },
}

/// The ε spent by a run so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpentEpsilon {
    /// A certified upper bound.
    pub epsilon: f64,
    /// The step to which the bound applies: the last step taken, except in paper mode, where ε has
    /// to be computed from the ledger.
    pub step: u64,
}
