//! Loading a model folder.

use super::Outline;
use crate::model::{Model, Result, TaskHead};
use std::path::Path;
use undertone_run::Quantise;

/// Options that override a model folder's configuration.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Task head; by default the configuration's.
    pub task_head: Option<TaskHead>,
    /// Label names; by default the configuration's.
    pub labels: Option<Vec<String>>,
    /// Seed of task head parameters that the weights lack.
    pub seed: u64,
    /// How the weights of linear layers are kept in memory; by default in the type of the file if
    /// that is bf16, otherwise in f32.
    pub quantise: Option<Quantise>,
}

/// Loads a model folder. Task head parameters that the weights lack are randomly initialised and
/// listed in [`Model::fresh`].
pub fn load(folder: &Path, options: &LoadOptions) -> Result<Model> {
    Outline::read(folder, options)?.load(folder, options)
}

impl TaskHead {
    /// Whether the head predicts labels, rather than tokens.
    pub fn has_labels(self) -> bool {
        matches!(self, Self::SequenceClassification | Self::TokenClassification)
    }
}
