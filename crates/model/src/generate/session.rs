//! Sequences under generation, with their key-value caches.

use crate::{Model, ParameterId, Pass, Result};
use std::collections::HashMap;
use std::sync::Arc;
use undertone_tensor::{self as tensor, KeyValueCache, Matrix, Panels};

/// A batch of sequences under generation, with their key-value caches.
#[derive(Clone, Debug)]
pub struct Session<'a> {
    model: &'a Model,
    panels: Arc<HashMap<ParameterId, Panels>>,
    caches: Vec<KeyValueCache>,
    lengths: Vec<usize>,
}

impl<'a> Session<'a> {
    /// Starts `sequences` empty sequences.
    pub fn new(model: &'a Model, sequences: usize) -> Self {
        let cache = || KeyValueCache::new(model.device(), sequences);
        let blocks = model.network.blocks.iter().flat_map(|block| block.linear_layers());
        let panels = blocks
            .chain([&model.network.head.out])
            .filter_map(|layer| Some((layer.weight, layer.factor(&model.parameters).panels()?)))
            .collect();
        Self {
            model,
            panels: Arc::new(panels),
            caches: model.network.blocks.iter().map(|_| cache()).collect(),
            lengths: vec![0; sequences],
        }
    }

    /// Appends tokens (at least one) to each sequence; returns the next token's logits,
    /// `[sequences, vocabulary]`. An empty sequence begins with the model's soft prompt.
    pub fn extend(&mut self, tokens: &[Vec<u32>]) -> Result<Matrix> {
        let mut starts = vec![0];
        let mut packed = Vec::new();
        let mut positions = Vec::new();
        let prompt = self.model.network.embeddings.prompt;
        for (new, length) in tokens.iter().zip(&mut self.lengths) {
            let before: Vec<u32> =
                prompt.iter().filter(|_| *length == 0).flat_map(|prompt| prompt.ids()).collect();
            let new = [&before[..], new].concat();
            positions.extend((*length..*length + new.len()).map(|p| p as u32));
            packed.extend_from_slice(&new);
            starts.push(packed.len());
            *length += new.len();
        }
        let network = &self.model.network;
        let pass = Pass {
            parameters: &self.model.parameters,
            starts: &starts,
            positions: &positions,
            visible: None,
            dropout_seed: None,
            keep: false,
            panels: Some(&self.panels),
        };
        let mut x = network.embeddings.forward(&pass, &packed, &[])?.0;
        for (block, cache) in network.blocks.iter().zip(&mut self.caches) {
            x = block.extend(&pass, &x, cache)?;
        }
        let last: Vec<u32> = starts[1..].iter().map(|&end| (end - 1) as u32).collect();
        if last.len() < x.rows() {
            x = tensor::gather(&x, &last)?;
        }
        if let Some(norm) = &network.last_norm {
            x = norm.forward(&pass, &x, None)?.0;
        }
        Ok(network.head.forward(&pass, &x, None)?.0)
    }

    /// Adds empty sequences behind the others.
    pub fn add(&mut self, sequences: usize) {
        for cache in &mut self.caches {
            cache.add(sequences);
        }
        self.lengths.resize(self.lengths.len() + sequences, 0);
    }

    /// Reorders the sequences: sequence `i` becomes the former sequence `origins[i]`.
    pub fn select(&mut self, origins: &[usize]) {
        for cache in &mut self.caches {
            cache.select(origins);
        }
        self.lengths = origins.iter().map(|&origin| self.lengths[origin]).collect();
    }
}
