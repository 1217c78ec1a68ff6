//! Loading a model folder.

use super::source::FileSource;
use super::{Config, Weights};
use crate::model::architecture::{Architecture, Builder, check_unused};
use crate::model::sanitised::load_sanitiser;
use crate::model::{Model, Result, TaskHead};
use std::path::Path;

/// Options that override a model folder's configuration.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Task head; by default the configuration's.
    pub task_head: Option<TaskHead>,
    /// Label names; by default the configuration's.
    pub labels: Option<Vec<String>>,
    /// Seed of task head parameters that the weights lack.
    pub seed: u64,
}

/// Loads a model folder. Task head parameters that the weights lack are randomly initialised and
/// listed in [`Model::fresh`].
pub fn load(folder: &Path, options: &LoadOptions) -> Result<Model> {
    let mut config = Config::read(folder)?;
    let architecture = Architecture::of(&config)?;
    let stated = config.architecture().and_then(|class| architecture.task_head(class));
    let Some(task_head) = options.task_head.or(stated) else {
        return Err(config.error(format!(
            "has no known task head in architectures ({}); say which task the model is for",
            config.architecture().unwrap_or("none")
        )));
    };
    let labels = match &options.labels {
        Some(labels) => Some(labels.clone()),
        None => config.labels()?,
    };
    let classes = labels.as_ref().map_or(2, Vec::len);
    if classes == 0 {
        return Err(config.error("has no label names"));
    }
    let weights = Weights::open(folder)?;
    let mut source = FileSource { weights: &weights, prefix: architecture.tensor_prefix() };
    let mut builder = Builder::new(&mut source, options.seed);
    let network = architecture.build(&config, task_head, classes, &mut builder)?;
    let (parameters, fresh) = (builder.parameters, builder.fresh);
    let prefix = architecture.tensor_prefix();
    check_unused(&config, prefix, &network, &parameters, weights.names())?;
    if let Some(class) = architecture.class_name(task_head) {
        config.set("architectures", serde_json::json!([class]));
    }
    if let Some(labels) = options.labels.as_ref().filter(|_| task_head.has_labels()) {
        config.set_labels(labels);
    }
    // Weights are held and saved as f32, whatever their type in the file.
    for key in ["dtype", "torch_dtype"] {
        if config.as_map().contains_key(key) {
            config.set(key, serde_json::json!("float32"));
        }
    }
    let mut model = Model::new(config, network, parameters, fresh);
    load_sanitiser(&mut model, folder)?;
    Ok(model)
}

impl TaskHead {
    /// Whether the head predicts labels, rather than tokens.
    pub fn has_labels(self) -> bool {
        matches!(self, Self::SequenceClassification | Self::TokenClassification)
    }
}
