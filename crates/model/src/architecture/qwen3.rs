//! Qwen3: Llama's layers with normalization of each head's queries and keys.

use super::llama::{self, Parts, Shape};
use super::{Builder, qwen2};
use crate::folder::Config;
use crate::{Network, Result, TaskHead};

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let shape = Shape::read(config)?;
    let attention_bias = config.flag_or("attention_bias", false)?;
    let parts = Parts {
        projection_bias: attention_bias,
        output_bias: attention_bias,
        head_norms: true,
        ..qwen2::parts(config, &shape)?
    };
    llama::decoder(config, &shape, &parts, task_head, classes, builder)
}
