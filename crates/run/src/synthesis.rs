//! The files of synthetic data: the statistics that steer sampling, and the results of sampling.
//!
//! ```text
//! statistics.json           noisy histograms, released before training
//! synthetic/journal.jsonl   every sampled row, one line each, from which sampling resumes
//! synthetic/data.csv        the synthetic rows (or data.jsonl, data.parquet)
//! synthetic/synthesis.json  how many rows were sampled and rejected
//! synthetic/ledger.jsonl    a copy of the run's ledger, so that the folder can be shared alone
//! synthetic/README.md       the data card
//! ```

use crate::{Error, Result, SyntheticFormat, check_format, write_json};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The statistics that steer sampling. In a private run, they are a release that the ledger lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// Version of the folder's layout.
    pub format: u32,
    /// Standard deviation of the noise on every weight; `None` if no noise was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_std: Option<f64>,
    /// The columns of the control codes.
    pub codes: Vec<String>,
    /// The classes: the combinations of control codes. Without codes, there is one class without
    /// values.
    pub classes: Vec<ClassWeight>,
    /// Number of privacy units by the length of their texts in tokens: bin `i` holds lengths above
    /// `i` and up to `i + 1` times `tokens_per_bin`.
    pub lengths: Vec<f64>,
    /// Width of a bin of `lengths`.
    pub tokens_per_bin: u64,
    /// Seed of sampling: derived from the run's secret, of which it reveals nothing.
    pub sampling_seed: u64,
}

/// A class and its number of privacy units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassWeight {
    /// The value of each control code.
    pub values: Vec<String>,
    /// Number of privacy units, each counted with one of its rows.
    pub weight: f64,
}

/// How synthetic rows were sampled: the contents of `synthesis.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampledFacts {
    /// Version of the folder's layout.
    pub format: u32,
    /// Number of rows.
    pub rows: u64,
    /// The columns of the data.
    pub columns: Vec<String>,
    /// Rows of each class, in the order of `statistics.json`.
    pub rows_by_class: Vec<u64>,
    /// Number of sampled texts.
    pub attempts: u64,
    /// Rejected texts by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Maximum number of tokens per text.
    pub most_tokens: u64,
    /// Sampling temperature.
    pub temperature: f64,
    /// Total probability of the tokens sampled from.
    pub top_p: f64,
    /// Format of the data file.
    pub data_format: SyntheticFormat,
}

/// The paths of the files in the folder of synthetic data.
#[derive(Clone, Debug)]
pub struct SyntheticPaths(PathBuf);

impl SyntheticPaths {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Every sampled row.
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal.jsonl")
    }

    /// The synthetic rows.
    pub fn data(&self, format: SyntheticFormat) -> PathBuf {
        self.0.join(format!("data.{}", format.extension()))
    }

    /// How the rows were sampled.
    pub fn facts(&self) -> PathBuf {
        self.0.join("synthesis.json")
    }

    /// A copy of the run's ledger.
    pub fn ledger(&self) -> PathBuf {
        self.0.join("ledger.jsonl")
    }

    /// The data card.
    pub fn card(&self) -> PathBuf {
        self.0.join("README.md")
    }

    /// Figures that are computed from synthetic or public data.
    pub fn evaluation(&self) -> PathBuf {
        self.0.join("evaluation.json")
    }
}

/// Reads a JSON file of the run folder.
fn read<T: for<'de> Deserialize<'de>>(path: &Path, what: &str) -> Result<T> {
    let text = crate::read_settings(path).map_err(Error::io(path))?;
    let damaged = |e| Error::folder(path, format!("is damaged, {what}: {e}"));
    serde_json::from_str(&text).map_err(damaged)
}

impl Statistics {
    /// Reads the statistics of a run.
    pub fn read(path: &Path) -> Result<Self> {
        let statistics: Self = read(path, "not the statistics of a run")?;
        check_format(path, Some(statistics.format))?;
        let whole =
            statistics.classes.iter().all(|class| class.values.len() == statistics.codes.len());
        let finite = statistics.classes.iter().all(|class| class.weight.is_finite())
            && statistics.lengths.iter().all(|weight| weight.is_finite());
        match whole && finite && !statistics.classes.is_empty() && statistics.tokens_per_bin > 0 {
            true => Ok(statistics),
            false => Err(Error::folder(path, "is damaged: its histograms are not whole")),
        }
    }

    /// Writes the statistics.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_json(path, self)
    }
}

impl SampledFacts {
    /// Reads the facts of finished sampling.
    pub fn read(path: &Path) -> Result<Self> {
        let facts: Self = read(path, "not the facts of synthetic data")?;
        check_format(path, Some(facts.format))?;
        Ok(facts)
    }

    /// Writes the facts, which marks sampling as finished.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_json(path, self)
    }
}
