//! Gemma 2 and Gemma 3 (text): RMSNorm with γ = 1 + w before and after each branch, embeddings
//! scaled by √hidden, GeGLU, and local and global layers. Gemma 2 soft-caps scores and logits;
//! Gemma 3 normalizes queries and keys, and its local layers have their own rotary base.

use super::Builder;
use super::llama::{self, LayerParts, Parts, Shape};
use super::rope;
use crate::folder::Config;
use crate::{Network, Result, TaskHead};

pub(super) fn build_2(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let shape = Shape::read(config)?;
    let is_local = llama::local_layers(config, shape.sizes.layers, |i| i.is_multiple_of(2))?;
    let layers = Parts::plain(config, &shape)?.layers;
    let parts = parts(config, &shape, layers, [Some(50.0), Some(30.0)])?
        .with_windows(Some(config.size_or("sliding_window", 4096)?), &is_local);
    llama::decoder(config, &shape, &parts, task_head, classes, builder)
}

pub(super) fn build_3(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let shape = Shape::read(config)?;
    let pattern = match config.as_map().contains_key("sliding_window_pattern") {
        true => config.size_or("sliding_window_pattern", 6)?,
        false => config.size_or("_sliding_window_pattern", 6)?,
    };
    let layers = shape.sizes.layers;
    let is_local = llama::local_layers(config, layers, |i| !(i + 1).is_multiple_of(pattern))?;
    let keys = |section, theta, default_theta, is_scaled| rope::Keys {
        section: Some(section),
        theta,
        default_theta,
        is_scaled,
    };
    let global = keys("full_attention", "rope_theta", 1_000_000.0, true);
    let local = keys("sliding_attention", "rope_local_base_freq", 10_000.0, false);
    let [global, local] = [global, local].map(|keys| rope::read(config, shape.width, keys));
    let (global, local) = (global?, local?);
    if global.attention_factor != 1.0 || local.attention_factor != 1.0 {
        return Err(config.error("Gemma's rotary embedding may be scaled by default or linear"));
    }
    let of_layer = |is_local: &bool| LayerParts {
        rope: Some(if *is_local { local.clone() } else { global.clone() }),
        window: None,
    };
    let layers = is_local.iter().map(of_layer).collect();
    let parts = Parts { head_norms: true, ..parts(config, &shape, layers, [None, None])? };
    if parts.attention_soft_cap.is_some() {
        return Err(config.error(
            "attn_logit_softcapping is set, but Gemma 3 does not soft-cap scores; it must be null",
        ));
    }
    let parts = parts.with_windows(Some(config.size_or("sliding_window", 4096)?), &is_local);
    llama::decoder(config, &shape, &parts, task_head, classes, builder)
}

/// The parts that both versions share; `caps` are the default soft caps of scores and logits.
fn parts(
    config: &Config,
    shape: &Shape,
    layers: Vec<LayerParts>,
    caps: [Option<f64>; 2],
) -> Result<Parts> {
    let [of_scores, of_logits] = caps;
    let bias = config.flag_or("attention_bias", false)?;
    let scalar = positive(config, "query_pre_attn_scalar", Some(256.0))?;
    Ok(Parts {
        projection_bias: bias,
        output_bias: bias,
        gemma_norms: true,
        embedding_scale: (shape.sizes.hidden as f32).sqrt(),
        attention_scale: scalar.map(|scalar| scalar.sqrt().recip()),
        attention_soft_cap: positive(config, "attn_logit_softcapping", of_scores)?,
        logit_soft_cap: positive(config, "final_logit_softcapping", of_logits)?,
        activation: ("hidden_activation", "gelu_pytorch_tanh"),
        tied_by_default: true,
        ..Parts::of_layers(layers)
    })
}

/// A positive number; `None` if the value is null, and `other` if the key is absent.
fn positive(config: &Config, key: &str, other: Option<f64>) -> Result<Option<f32>> {
    let number = match config.as_map().get(key) {
        None => other,
        Some(value) if value.is_null() => None,
        Some(_) => Some(config.number_or(key, 0.0)?),
    };
    match number {
        Some(number) if number <= 0.0 || number > 1e9 => {
            Err(config.error(format!("{key} is {number}, but must be positive and at most 1e9")))
        }
        number => Ok(number.map(|number| number as f32)),
    }
}
