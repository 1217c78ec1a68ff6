//! Mistral: Llama's layers with sliding-window attention.

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
    let window = llama::window(config)?;
    let all = vec![true; shape.sizes.layers];
    let parts = Parts::plain(config, &shape)?.with_windows(window, &all);
    llama::decoder(config, &shape, &parts, task_head, classes, builder)
}
