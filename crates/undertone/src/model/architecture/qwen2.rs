//! Qwen2 and Qwen2.5: Llama's layers, with biases on queries, keys and values.

use super::Builder;
use super::llama::{self, Parts};
use crate::model::folder::Config;
use crate::model::{Network, Result, TaskHead};

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let window = window(config)?;
    let parts = Parts {
        projection_bias: true,
        output_bias: false,
        mlp_bias: false,
        head_norms: false,
        window,
    };
    llama::decoder(config, &parts, task_head, classes, builder)
}

/// The window, which files name also where it is not used.
pub(super) fn window(config: &Config) -> Result<Option<usize>> {
    match config.flag_or("use_sliding_window", false)? {
        true => llama::window(config),
        false => Ok(None),
    }
}
