//! Qwen2 and Qwen2.5: Llama's layers, with biases on queries, keys and values.

use super::Builder;
use super::llama::{self, Parts, Shape};
use crate::folder::Config;
use crate::{Network, Result, TaskHead};

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let shape = Shape::read(config)?;
    let parts = Parts { projection_bias: true, ..parts(config, &shape)? };
    llama::decoder(config, &shape, &parts, task_head, classes, builder)
}

/// Llama's settings, with windows in the later layers if the configuration enables them; it
/// specifies a window size even if none is used.
pub(super) fn parts(config: &Config, shape: &Shape) -> Result<Parts> {
    let window = match config.flag_or("use_sliding_window", false)? {
        true => llama::window(config)?,
        false => None,
    };
    let first = config.index_or("max_window_layers", 28)? as usize;
    let is_local = llama::local_layers(config, shape.sizes.layers, |i| i >= first)?;
    Ok(Parts::plain(config, shape)?.with_windows(window, &is_local))
}
