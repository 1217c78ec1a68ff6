//! `[synthesis]`: synthetic rows that a completion model writes.

use super::Format;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `[synthesis]`: synthetic rows, sampled from the trained model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SynthesisSection {
    /// The values of each column in `data.prompt` (its control codes), which makes them public,
    /// such as `{ topic = ["sport", "travel"] }`; required for each of these columns, unless
    /// `data.publish_labels` is set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub codes: BTreeMap<String, Vec<String>>,
    /// Number of rows to sample; 1000 by default.
    #[serde(default = "rows")]
    pub rows: u64,
    /// Format of the synthetic data; `csv` by default.
    #[serde(default)]
    pub format: SyntheticFormat,
    /// Sampling temperature: 1 for the model's own distribution; 1 by default.
    #[serde(default = "temperature")]
    pub temperature: f64,
    /// Sample from the most likely tokens with this total probability (nucleus sampling); 0.95 by
    /// default.
    #[serde(default = "top_p")]
    pub top_p: f64,
    /// Share of ε for the noisy histograms of control codes and of lengths, from which quotas and
    /// the length limit are computed; 0.05 by default.
    #[serde(default = "statistics_share")]
    pub statistics_share: f64,
}

impl Default for SynthesisSection {
    fn default() -> Self {
        Self {
            codes: BTreeMap::new(),
            rows: rows(),
            format: SyntheticFormat::default(),
            temperature: temperature(),
            top_p: top_p(),
            statistics_share: statistics_share(),
        }
    }
}

fn rows() -> u64 {
    1000
}
fn temperature() -> f64 {
    1.0
}
fn top_p() -> f64 {
    0.95
}
fn statistics_share() -> f64 {
    0.05
}

/// Format of synthetic data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum SyntheticFormat {
    /// Comma-separated with a header, quoted as in RFC 4180
    #[default]
    Csv,
    /// One JSON object per line
    Jsonl,
    /// Apache Parquet
    Parquet,
}

impl SyntheticFormat {
    /// The file extension.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
        }
    }

    /// The format as that of a data file.
    pub fn as_format(self) -> Format {
        match self {
            Self::Csv => Format::Csv,
            Self::Jsonl => Format::Jsonl,
            Self::Parquet => Format::Parquet,
        }
    }
}
