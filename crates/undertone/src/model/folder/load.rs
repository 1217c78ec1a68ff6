//! From a folder to a model.

use super::source::FileSource;
use super::{Config, Weights};
use crate::model::architecture::{Architecture, Builder};
use crate::model::sanitised::load_sanitiser;
use crate::model::{Model, Purpose, Result};
use std::path::Path;

/// What is asked of a model beyond what its folder says.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// The head that is needed; by default the one that the configuration names.
    pub purpose: Option<Purpose>,
    /// Names of the classes; by default those of the configuration.
    pub labels: Option<Vec<String>>,
    /// Draws the parameters of a head that the weights do not have.
    pub seed: u64,
}

/// Loads a model folder. A head that the weights do not have is drawn at random and listed in
/// [`Model::fresh`].
pub fn load(folder: &Path, options: &LoadOptions) -> Result<Model> {
    let mut config = Config::read(folder)?;
    let architecture = Architecture::of(&config)?;
    let stated = config.architecture().and_then(|class| architecture.purpose(class));
    let Some(purpose) = options.purpose.or(stated) else {
        return Err(config.error(format!(
            "names no head that is known ({}); say which task the model is for",
            config.architecture().unwrap_or("no architectures")
        )));
    };
    let labels = match &options.labels {
        Some(labels) => Some(labels.clone()),
        None => config.labels()?,
    };
    let classes = labels.as_ref().map_or(2, Vec::len);
    if classes == 0 {
        return Err(config.error("names no classes"));
    }
    let weights = Weights::open(folder)?;
    let mut source = FileSource { weights: &weights, prefix: architecture.tensor_prefix() };
    let mut builder = Builder::new(&mut source, options.seed);
    let network = architecture.build(&config, purpose, classes, &mut builder)?;
    let (parameters, fresh) = (builder.parameters, builder.fresh);
    if let Some(class) = architecture.class_name(purpose) {
        config.set("architectures", serde_json::json!([class]));
    }
    if let Some(labels) = options.labels.as_ref().filter(|_| purpose.has_labels()) {
        config.set_labels(labels);
    }
    // Weights are held as f32 whatever they were, and saved so.
    for key in ["dtype", "torch_dtype"] {
        if config.as_map().contains_key(key) {
            config.set(key, serde_json::json!("float32"));
        }
    }
    let mut model = Model::new(config, network, parameters, fresh);
    load_sanitiser(&mut model, folder)?;
    Ok(model)
}

impl Purpose {
    /// Whether its classes have names of their own, rather than being tokens.
    pub fn has_labels(self) -> bool {
        matches!(self, Self::SequenceClassification | Self::TokenClassification)
    }
}
