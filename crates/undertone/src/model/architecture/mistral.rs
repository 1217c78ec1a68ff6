//! Mistral: Llama's layers, in which a token sees no further than a window.

use super::Builder;
use super::llama::{self, Parts, Shape};
use crate::model::folder::Config;
use crate::model::{Network, Result, TaskHead};

pub(super) fn build(
    config: &Config,
    task_head: TaskHead,
    classes: usize,
    builder: &mut Builder,
) -> Result<Network> {
    let shape = Shape::read(config)?;
    let window = llama::window(config)?;
    let all = vec![true; shape.sizes.layers];
    let parts = Parts::plain(config, &shape)?.with_windows(window, &all);
    llama::decoder(config, &shape, &parts, task_head, classes, builder)
}
