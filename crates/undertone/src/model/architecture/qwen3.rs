//! Qwen3: Llama's layers, with a normalisation of each head's queries and keys.

use super::llama::{self, Parts};
use super::{Builder, qwen2};
use crate::model::folder::Config;
use crate::model::{Network, Result, TaskHead};

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let attention_bias = config.flag_or("attention_bias", false)?;
    let parts = Parts {
        projection_bias: attention_bias,
        output_bias: attention_bias,
        mlp_bias: false,
        head_norms: true,
        window: qwen2::window(config)?,
    };
    llama::decoder(config, &parts, task_head, classes, builder)
}
