//! Tensors in the weights that a model does not use: a sign that config.json describes another model,
//! such as one with fewer layers.

use crate::model::folder::Config;
use crate::model::{Network, Parameters, Result};
use std::collections::HashSet;

/// Ends of names of buffers that older versions of transformers stored and that are computed.
const BUFFERS: &[&str] =
    &[".attn.bias", ".attn.masked_bias", "inv_freq", "position_ids", "attention.bias"];

/// Errors if the weights have a tensor inside of the transformer blocks that none of the model's
/// parameters is. Other task heads, poolers and such may stand beside them.
pub(crate) fn check_unused<'a>(
    config: &Config,
    prefix: &str,
    network: &Network,
    parameters: &Parameters,
    names: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let bare = |name: &str| name.strip_prefix(prefix).unwrap_or(name).to_owned();
    let Some(first) = network.blocks.first() else { return Ok(()) };
    let first = bare(&first.name);
    let Some(blocks) = first.strip_suffix('0') else { return Ok(()) };
    let known: HashSet<String> = parameters.iter().map(|(_, p)| bare(&p.name)).collect();
    let mut unused: Vec<&str> = names
        .filter(|name| !BUFFERS.iter().any(|buffer| name.ends_with(buffer)))
        .filter(|name| {
            let name = bare(name).replace("LayerNorm.gamma", "LayerNorm.weight");
            let name = name.replace("LayerNorm.beta", "LayerNorm.bias");
            name.starts_with(blocks) && !known.contains(&name)
        })
        .collect();
    unused.sort_unstable();
    match unused.first() {
        None => Ok(()),
        Some(name) => Err(config.error(format!(
            "describes {} layers without {name}, which the weights have; config.json must be that \
             of the weights",
            network.blocks.len()
        ))),
    }
}
