//! SmolLM3: Llama's layers, every fourth of which has no position embedding (NoPE).

use super::Builder;
use super::llama::{self, LayerParts, Parts, Shape};
use super::rope;
use crate::folder::Config;
use crate::{Network, Result, TaskHead};
use serde_json::Value;

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let shape = Shape::read(config)?;
    let layers = shape.sizes.layers;
    let attention_bias = config.flag_or("attention_bias", false)?;
    let rope = rope::read(config, shape.width, rope::Keys::plain(2_000_000.0))?;
    let rotates = rotating_layers(config, layers)?;
    let window = match config.flag_or("use_sliding_window", false)? {
        true => llama::window(config)?,
        false => None,
    };
    let is_local = llama::local_layers(config, layers, |i| !rotates[i])?;
    let of_layers = rotates
        .iter()
        .map(|rotates| LayerParts { rope: rotates.then(|| rope.clone()), window: None })
        .collect();
    let parts = Parts {
        projection_bias: attention_bias,
        output_bias: attention_bias,
        mlp_bias: config.flag_or("mlp_bias", false)?,
        tied_by_default: true,
        ..Parts::of_layers(of_layers)
    };
    let parts = parts.with_windows(window, &is_local);
    llama::decoder(config, &shape, &parts, task_head, classes, builder)
}

/// Whether each layer has a rotary embedding. Despite its name, a 1 in `no_rope_layers` means that
/// it does.
fn rotating_layers(config: &Config, layers: usize) -> Result<Vec<bool>> {
    match config.as_map().get("no_rope_layers").filter(|list| !list.is_null()) {
        None => {
            let interval = config.size_or("no_rope_layer_interval", 4)?;
            Ok((0..layers).map(|i| !(i + 1).is_multiple_of(interval)).collect())
        }
        Some(list) => {
            let flags: Option<Vec<bool>> = list.as_array().and_then(|list| {
                let is_rotating = |flag: &Value| flag.as_u64().filter(|n| *n <= 1).map(|n| n == 1);
                list.iter().take(layers).map(is_rotating).collect()
            });
            flags.filter(|flags| flags.len() == layers).ok_or_else(|| {
                config.error(format!(
                    "no_rope_layers must be a list of 0 or 1 for each of the {layers} layers"
                ))
            })
        }
    }
}
