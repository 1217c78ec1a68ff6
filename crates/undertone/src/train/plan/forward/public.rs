//! Public data of a run file, and what learns from them before anything is released.

use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;

/// A file of public data: its path, or a table with its columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublicFile {
    /// The file.
    pub file: PathBuf,
    /// Its columns of text; by default those of the training file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Vec<String>>,
    /// Its column of labels; by default that of the training file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl<'de> Deserialize<'de> for PublicFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Path(PathBuf),
            Table(Table),
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            file: PathBuf,
            text: Option<Vec<String>>,
            label: Option<String>,
        }
        match Written::deserialize(deserializer).map_err(|_| {
            serde::de::Error::custom(
                "public is \"file\" or { file = \"file\", text = [\"column\"] }",
            )
        })? {
            Written::Path(file) => Ok(Self { file, text: None, label: None }),
            Written::Table(Table { file, text, label }) => Ok(Self { file, text, label }),
        }
    }
}

/// Learning before anything is released: from public data, or from the records with a share of the
/// budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdaptPlan {
    /// Public labelled data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<PublicFile>,
    /// The share of ε that DP-SGD on the records may cost by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Passes over the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u32>,
    /// Examples in a step; of records, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// The largest learning rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
}

impl AdaptPlan {
    /// Passes over the data: two, unless the run file says otherwise.
    pub fn epochs(&self) -> u32 {
        self.epochs.unwrap_or(2)
    }

    /// Examples in a step: noise asks for many.
    pub fn batch(&self) -> u64 {
        self.batch.unwrap_or(if self.share.is_some() { 1024 } else { 32 })
    }

    /// The largest learning rate.
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate.unwrap_or(if self.share.is_some() { 5e-4 } else { 5e-5 })
    }
}
