//! metrics.jsonl: one record for each step, and the metrics of a model on a file.

use crate::error::{Error, Result};
use crate::numbers::null_as_nan;
use crate::write_atomically;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Metrics of a model on a file; which ones depends on its task head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Metrics {
    /// Of a classifier.
    Classification(ClassificationMetrics),
    /// Of a language model.
    Language(LanguageMetrics),
}

/// Metrics of a classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassificationMetrics {
    /// Examples with a label.
    pub examples: usize,
    /// Share of examples whose likeliest class is the label, in [0, 1].
    #[serde(deserialize_with = "null_as_nan")]
    pub accuracy: f64,
    /// F1 of class 1 if there are two classes, otherwise the mean of the classes' F1.
    #[serde(deserialize_with = "null_as_nan")]
    pub f1: f64,
    /// Mean cross-entropy, in nats.
    #[serde(deserialize_with = "null_as_nan")]
    pub loss: f64,
    /// `confusion[label][prediction]`.
    pub confusion: Vec<Vec<u64>>,
}

/// Metrics of a language model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LanguageMetrics {
    /// Texts.
    pub examples: usize,
    /// Tokens that were predicted.
    pub tokens: usize,
    /// Mean cross-entropy of a token, in nats.
    #[serde(deserialize_with = "null_as_nan")]
    pub loss: f64,
    /// e to the loss.
    #[serde(deserialize_with = "null_as_nan")]
    pub perplexity: f64,
}

impl Metrics {
    /// The name of the metric that models are compared by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Classification(_) => "accuracy",
            Self::Language(_) => "perplexity",
        }
    }

    /// The metric that models are compared by; accuracy in percent.
    pub fn main(&self) -> f64 {
        match self {
            Self::Classification(metrics) => 100.0 * metrics.accuracy,
            Self::Language(metrics) => metrics.perplexity,
        }
    }

    /// [`Metrics::main`] as people read it.
    pub fn shown(&self) -> String {
        match self {
            Self::Classification(_) => format!("{:.2} %", self.main()),
            Self::Language(_) => format!("{:.3}", self.main()),
        }
    }

    /// Mean cross-entropy, in nats.
    pub fn loss(&self) -> f64 {
        match self {
            Self::Classification(metrics) => metrics.loss,
            Self::Language(metrics) => metrics.loss,
        }
    }
}

/// One line of metrics.jsonl. All of it is computed from private data without noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Steps taken, this one included.
    pub step: u64,
    /// The epoch, from 1.
    pub epoch: u64,
    /// Privacy units in the batch.
    pub units: usize,
    /// Mean loss over the batch; none if it was empty.
    pub loss: Option<f64>,
    /// The learning rate of the step.
    pub learning_rate: f64,
    /// Mean ℓ2 norm of the per-unit gradients before clipping, of a private run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
    /// Share of the units whose gradient was clipped, of a private run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clipped: Option<f64>,
    /// ε spent so far (upper bound), at the end of an epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// On the validation file, at the end of an epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Metrics>,
    /// Noise of each trainable parameter relative to the mean over all coordinates, at the end of
    /// an epoch; empty if it is the same everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noise_by_parameter: Vec<(String, f64)>,
}

/// Appends records to metrics.jsonl.
#[derive(Debug)]
pub struct MetricsWriter {
    file: File,
}

#[derive(Deserialize)]
struct StepOnly {
    step: u64,
}

impl MetricsWriter {
    /// Opens the file, of which only the lines up to `steps` are kept: a resumed run writes later
    /// ones again.
    pub fn open(path: &Path, steps: u64) -> Result<Self> {
        if let Ok(text) = std::fs::read_to_string(path) {
            let kept = text.lines().filter(|line| {
                serde_json::from_str::<StepOnly>(line).is_ok_and(|record| record.step <= steps)
            });
            let kept: String = kept.map(|line| format!("{line}\n")).collect();
            if kept != text {
                write_atomically(path, |out| out.write_all(kept.as_bytes()))?;
            }
        }
        let file =
            OpenOptions::new().create(true).append(true).open(path).map_err(Error::io(path))?;
        Ok(Self { file })
    }

    /// Adds a line.
    pub fn add(&mut self, path: &Path, record: &Record) -> Result<()> {
        let mut line = serde_json::to_string(record)
            .map_err(|e| Error::folder(path, format!("cannot be written: {e}")))?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(Error::io(path))
    }
}

/// All records of a finished run; none if the file is not there, as when it was kept back.
pub fn read_metrics(path: &Path) -> Result<Vec<Record>> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(Vec::new()) };
    let line = |(i, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| {
            Error::folder(path, format!("is not what a run writes: line {}: {e}", i + 1))
        })
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(line).collect()
}
