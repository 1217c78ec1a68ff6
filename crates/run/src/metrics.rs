//! `metrics.jsonl`: one record per step, and the metrics of a model on a file.

use crate::numbers::{null_as_nan, square};
use crate::{Error, Result};
use crate::{read_bytes, write_atomically};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Metrics of a model on a file; the variant depends on its task head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Metrics {
    /// Metrics of a classifier.
    Classification(ClassificationMetrics),
    /// Metrics of a language model.
    Language(LanguageMetrics),
}

/// Metrics of a classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassificationMetrics {
    /// Number of examples with a label.
    pub examples: usize,
    /// Fraction of correctly classified examples, in [0, 1].
    #[serde(deserialize_with = "null_as_nan")]
    pub accuracy: f64,
    /// F1 score of class 1 for two classes, otherwise the macro average.
    #[serde(deserialize_with = "null_as_nan")]
    pub f1: f64,
    /// Mean cross-entropy, in nats.
    #[serde(deserialize_with = "null_as_nan")]
    pub loss: f64,
    /// Confusion matrix: counts by `[label][prediction]`.
    #[serde(deserialize_with = "square")]
    pub confusion: Vec<Vec<u64>>,
}

/// Metrics of a language model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LanguageMetrics {
    /// Number of texts.
    pub examples: usize,
    /// Number of predicted tokens.
    pub tokens: usize,
    /// Mean cross-entropy per token, in nats.
    #[serde(deserialize_with = "null_as_nan")]
    pub loss: f64,
    /// Perplexity, exp(loss).
    #[serde(deserialize_with = "null_as_nan")]
    pub perplexity: f64,
}

impl Metrics {
    /// Name of the main metric.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Classification(_) => "accuracy",
            Self::Language(_) => "perplexity",
        }
    }

    /// The main metric for comparing models: accuracy in percent, or perplexity.
    pub fn main(&self) -> f64 {
        match self {
            Self::Classification(metrics) => 100.0 * metrics.accuracy,
            Self::Language(metrics) => metrics.perplexity,
        }
    }

    /// The main metric, formatted.
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

/// A metric on private validation data, with noise that the ledger has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReleasedMetric {
    /// The epoch after which it was released, starting at 1.
    pub epoch: u64,
    /// Accuracy of a classifier, in [0, 1]; each unit counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Mean loss of a language model, in nats, where larger losses than 10 of an example count as
    /// 10; each unit counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Standard deviation of the noise on the metric, estimated from it.
    pub std: f64,
}

impl ReleasedMetric {
    /// A score that is larger for better models.
    pub fn score(&self) -> f64 {
        self.accuracy.or(self.loss.map(|loss| -loss)).unwrap_or(f64::NEG_INFINITY)
    }
}

impl std::fmt::Display for ReleasedMetric {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match (self.accuracy, self.loss) {
            (Some(accuracy), _) => {
                write!(f, "accuracy {:.1} % ± {:.1}", 100.0 * accuracy, 196.0 * self.std)
            }
            (_, Some(loss)) => write!(f, "loss {loss:.3} ± {:.3}", 1.96 * self.std),
            _ => write!(f, "no metric"),
        }
    }
}

/// One line of `metrics.jsonl`. It is computed from private data without noise, so it is private.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number of steps taken, including this one.
    pub step: u64,
    /// The epoch, starting at 1.
    pub epoch: u64,
    /// Number of privacy units in the batch.
    pub units: usize,
    /// Mean loss over the batch; `None` if the batch was empty.
    pub loss: Option<f64>,
    /// The learning rate of the step.
    pub learning_rate: f64,
    /// Mean ℓ2 norm of the per-unit gradients before clipping, for a private run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
    /// Fraction of units whose gradient was clipped, in [0, 1], for a private run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clipped: Option<f64>,
    /// ε spent so far: an upper bound, equal to the ledger's at the end of an epoch and otherwise
    /// at most 2 % above it. In paper mode it is not computed at every step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// Metrics on the validation file, at the end of an epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Metrics>,
    /// The metric on private validation data that was released at the end of the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<ReleasedMetric>,
    /// Noise std of each trainable parameter relative to the mean over all coordinates, at the end
    /// of an epoch; empty if all are equal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noise_by_parameter: Vec<(String, f64)>,
    /// Clipping norm C of the step under adaptive clipping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
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
    /// Opens the file and keeps only the lines up to step `steps`; a resumed run rewrites the later
    /// ones.
    pub fn open(path: &Path, steps: u64) -> Result<Self> {
        if let Some(text) = read_text(path)? {
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

    /// Appends a record.
    pub fn add(&mut self, path: &Path, record: &Record) -> Result<()> {
        let mut line = serde_json::to_string(record)
            .map_err(|e| Error::folder(path, format!("cannot be written: {e}")))?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(Error::io(path))
    }
}

/// Reads the file's text; `None` if it does not exist.
fn read_text(path: &Path) -> Result<Option<String>> {
    match read_bytes(path, u64::MAX) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io(path)(e)),
    }
}

/// All records of a finished run; empty if the file is missing, for example because it was not
/// published.
pub fn read_metrics(path: &Path) -> Result<Vec<Record>> {
    let Some(text) = read_text(path)? else { return Ok(Vec::new()) };
    let line = |(i, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| {
            Error::folder(path, format!("line {} is not a record of metrics: {e}", i + 1))
        })
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(line).collect()
}
