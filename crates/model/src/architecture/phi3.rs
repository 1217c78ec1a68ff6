//! Phi-3 and Phi-3.5: Llama's layers, with one fused layer for queries, keys and values, and one
//! for gate and up-projection.

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
    if config.flag_or("attention_bias", false)? {
        return Err(config.error("attention_bias must be false: Phi-3 has no biases"));
    }
    let parts = Parts {
        fused: true,
        epsilon: 1e-5,
        dropout: [config.dropout_or_zero("resid_pdrop")?, config.dropout_or_zero("embd_pdrop")?],
        ..Parts::plain(config, &shape)?
    };
    let all = vec![true; shape.sizes.layers];
    let parts = parts.with_windows(llama::window(config)?, &all);
    llama::decoder(config, &shape, &parts, task_head, classes, builder)
}
