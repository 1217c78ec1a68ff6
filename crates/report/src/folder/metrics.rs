//! metrics.jsonl: one line for each step.

use super::summary::Measures;
use crate::error::{Error, Result};
use serde::Deserialize;
use std::path::Path;

/// One step.
#[derive(Clone, Debug, Deserialize)]
pub struct Record {
    /// Steps taken, this one included.
    pub step: u64,
    /// The epoch, from 1.
    pub epoch: u64,
    /// Mean over the batch; none if it was empty.
    pub loss: Option<f64>,
    /// On the validation file, at the end of an epoch.
    pub validation: Option<Measures>,
}

/// All steps; none if the file is not there, as when it was kept back.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(Vec::new()) };
    let line = |(i, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| Error::damaged(path, format!("line {}: {e}", i + 1)))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(line).collect()
}
