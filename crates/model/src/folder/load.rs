//! Loading a model folder.

use super::Outline;
use crate::{Model, Result, TaskHead};
use std::path::Path;
use undertone_settings::Quantize;

/// Options that override a model folder's configuration.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Task head; by default the configuration's.
    pub task_head: Option<TaskHead>,
    /// Label names; by default the configuration's.
    pub labels: Option<Vec<String>>,
    /// Seed for task head parameters that the weights lack.
    pub seed: u64,
    /// How the weights of linear layers are stored in memory; by default bf16 if that is the type
    /// in the file, otherwise f32.
    pub quantize: Option<Quantize>,
}

/// Loads a model folder. Task head parameters that the weights lack are randomly initialized and
/// listed in [`Model::fresh`].
pub fn load(folder: &Path, options: &LoadOptions) -> Result<Model> {
    Outline::read(folder, options)?.load(folder, options)
}

impl TaskHead {
    /// Whether the head predicts labels rather than tokens.
    pub fn has_labels(self) -> bool {
        matches!(self, Self::SequenceClassification | Self::TokenClassification)
    }
}
