//! A model without its values: everything that `config.json` and the headers of the weights
//! specify, checked against each other before anything large is allocated.

use super::source::FileSource;
use super::{Config, LoadOptions, Weights};
use crate::architecture::{Architecture, Builder};
use crate::sanitized::load_sanitizer;
use crate::{Model, Network, Result, TaskHead};
use std::collections::BTreeSet;
use std::path::Path;

/// Tensors of a block that the computation does not use: buffers of causal masks and rotary
/// frequencies in old files.
const BUFFERS: [&str; 4] = [".attn.bias", ".attn.masked_bias", ".inv_freq", ".position_ids"];

/// A model folder whose configuration and weights are known to match.
pub struct Outline {
    /// The model with the shapes of its parameters but without their values: fine-tuning can be
    /// applied and parameters counted, but nothing can be computed.
    pub model: Model,
    pub architecture: Architecture,
    pub task_head: TaskHead,
    pub weights: Weights,
    classes: usize,
}

impl Outline {
    /// Reads `config.json` and the headers of the weights.
    pub fn read(folder: &Path, options: &LoadOptions) -> Result<Self> {
        let mut config = Config::read(folder)?;
        let architecture = Architecture::of(&config)?;
        let stated = config.architecture().and_then(|class| architecture.task_head(class));
        let Some(task_head) = options.task_head.or(stated) else {
            return Err(config.error(format!(
                "has no known task head in architectures ({}); specify the task",
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
        let mut source = FileSource::new(&weights, architecture.tensor_prefix());
        let mut builder = Builder::of_shapes(&mut source);
        let network = architecture.build(&config, task_head, classes, &mut builder)?;
        let (parameters, fresh) = (builder.parameters, builder.fresh);
        check_unused(&config, architecture, &network, &weights, &source.used)?;
        if let Some(class) = architecture.class_name(task_head) {
            config.set("architectures", serde_json::json!([class]));
        }
        if let Some(labels) = options.labels.as_ref().filter(|_| task_head.has_labels()) {
            config.set_labels(labels);
        }
        // `save` writes f32, whatever the type in the file.
        for key in ["dtype", "torch_dtype"] {
            if config.as_map().contains_key(key) {
                config.set(key, serde_json::json!("float32"));
            }
        }
        let mut model = Model::new(config, network, parameters, fresh);
        load_sanitizer(&mut model, folder)?;
        Ok(Self { model, architecture, task_head, weights, classes })
    }

    /// Reads the values; the options' seed initializes task head parameters that the weights lack.
    pub fn load(self, folder: &Path, options: &LoadOptions) -> Result<Model> {
        let Self { model, architecture, task_head, weights, classes } = self;
        let mut source = FileSource::new(&weights, architecture.tensor_prefix());
        let mut builder = Builder::new(&mut source, options.seed).quantized(options.quantize);
        let network = architecture.build(&model.config, task_head, classes, &mut builder)?;
        let mut loaded = Model::new(model.config, network, builder.parameters, builder.fresh);
        loaded.quantize = options.quantize;
        load_sanitizer(&mut loaded, folder)?;
        Ok(loaded)
    }
}

/// Rejects weights of blocks that the configuration does not describe: a model that omits some of
/// its layers, or some weights of a layer, is a different model. Weights of other task heads may
/// remain unused.
fn check_unused(
    config: &Config,
    architecture: Architecture,
    network: &Network,
    weights: &Weights,
    used: &BTreeSet<String>,
) -> Result<()> {
    let prefix = architecture.tensor_prefix();
    let bare = |name: &str| name.strip_prefix(prefix).unwrap_or(name).to_owned();
    let Some(first) = network.blocks.first() else { return Ok(()) };
    // `encoder.layer.` for `bert.encoder.layer.0`.
    let first = bare(&first.name);
    let stem = first.trim_end_matches(|c: char| c.is_ascii_digit());
    let mut unused: Vec<&str> = weights.names().filter(|name| !used.contains(*name)).collect();
    unused.sort_unstable();
    for name in unused {
        let own = bare(name);
        let Some((number, _)) = own.strip_prefix(stem).and_then(|rest| rest.split_once('.')) else {
            continue;
        };
        let layers = network.blocks.len();
        match number.parse::<usize>() {
            Ok(number) if number >= layers => {
                return Err(config.error(format!(
                    "says that the model has {layers} layers, but the weights have more ({name})",
                )));
            }
            Ok(_) if !BUFFERS.iter().any(|buffer| own.ends_with(buffer)) => {
                return Err(config.error(format!(
                    "does not describe the tensor {name} of the weights, which no {} model has",
                    architecture.model_type()
                )));
            }
            _ => {}
        }
    }
    Ok(())
}
