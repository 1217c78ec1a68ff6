//! Training events, which a callback receives.

use undertone_run::{ParameterCounts, Record, Resolved, Throughput};

/// What happened in a run.
#[derive(Debug)]
pub enum TrainingEvent<'a> {
    /// The relevance map of one more example was computed.
    Relevance {
        /// Examples done.
        done: usize,
        /// Examples in all.
        examples: usize,
    },
    /// A step of the adaptation, on public data or by DP-SGD, was taken.
    Adaptation {
        /// Steps done.
        done: u64,
        /// Steps in all.
        steps: u64,
    },
    /// Everything is loaded and calibrated.
    Ready {
        /// Steps and calibrated noise.
        resolved: &'a Resolved,
        /// Examples in the training file.
        examples: usize,
        /// Trainable and all parameters.
        parameters: ParameterCounts,
        /// Steps already taken by the run that is resumed.
        done: u64,
        /// Steps in all.
        steps: u64,
    },
    /// A step was taken.
    Step {
        /// Its line in metrics.jsonl.
        record: &'a Record,
        /// Speed since the start.
        throughput: Throughput,
        /// ε spent so far, when it was last computed.
        epsilon: Option<f64>,
    },
}
