//! What is written down about each step.

use super::error::{Error, Result};
use crate::evaluate::Metrics;
use crate::model::folder::write_atomically;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// One line of metrics.jsonl.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Steps taken, this one included.
    pub step: u64,
    /// The epoch, from 1.
    pub epoch: u64,
    /// Units in the batch.
    pub units: usize,
    /// Mean over the batch; none if it was empty.
    pub loss: Option<f64>,
    /// The learning rate.
    pub learning_rate: f64,
    /// Mean norm of the units' gradients before clipping, of a private run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
    /// The part of the units that was shortened, of a private run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clipped: Option<f64>,
    /// ε spent so far (upper bound), at the end of an epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// On the validation file, at the end of an epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Metrics>,
    /// How much noise each trained parameter has relative to the mean over all coordinates, at the
    /// end of an epoch; empty if it is the same everywhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub noise_by_parameter: Vec<(String, f64)>,
}

/// Appends records to a file.
#[derive(Debug)]
pub struct Records {
    file: File,
}

#[derive(Deserialize)]
struct StepOnly {
    step: u64,
}

impl Records {
    /// Opens the file, of which only the lines up to `steps` are kept: later ones are written
    /// again.
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
        let mut line = serde_json::to_string(record).unwrap_or_default();
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(Error::io(path))
    }
}
