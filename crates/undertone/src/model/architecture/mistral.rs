//! Mistral: Llama's layers, in which a token sees no further than a window.

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
    let window = llama::window(config)?;
    let parts = Parts {
        projection_bias: false,
        output_bias: false,
        mlp_bias: false,
        head_norms: false,
        window,
    };
    llama::decoder(config, &parts, task_head, classes, builder)
}
