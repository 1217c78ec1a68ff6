//! The key–value cache for token-by-token generation.

use super::backend::{At, Backend};
use super::cpu::Cpu;
use super::cuda::Cuda;
use super::error::{count, fits};
use super::{AttentionShape, Device, Matrix, Result};

/// Keys and values of one layer for every sequence being generated.
#[derive(Clone, Debug)]
pub struct KeyValueCache(Store);

#[derive(Clone, Debug)]
enum Store {
    Host(<Cpu as Backend>::Cache),
    Cuda(<Cuda as Backend>::Cache),
}

impl KeyValueCache {
    /// An empty cache for `sequences` sequences.
    pub fn new(device: &Device, sequences: usize) -> Self {
        Self(match device {
            Device::Cpu => Store::Host(Cpu::new_cache(sequences)),
            Device::Cuda(_) => Store::Cuda(Cuda::new_cache(sequences)),
        })
    }

    /// Adds empty sequences behind the others.
    pub fn add(&mut self, sequences: usize) {
        match &mut self.0 {
            Store::Host(cache) => Cpu::add_sequences(cache, sequences),
            Store::Cuda(cache) => Cuda::add_sequences(cache, sequences),
        }
    }

    /// Replaces sequence `i` by a copy of the former sequence `origins[i]`; this can drop, repeat
    /// and reorder sequences.
    pub fn select(&mut self, origins: &[usize]) {
        match &mut self.0 {
            Store::Host(cache) => Cpu::select(cache, origins),
            Store::Cuda(cache) => Cuda::select(cache, origins),
        }
    }

    /// Appends the keys and values of the new tokens, and lets each token attend to everything up
    /// to itself.
    pub fn attend(&mut self, qkv: &Matrix, shape: &AttentionShape) -> Result<Matrix> {
        match &mut self.0 {
            Store::Host(cache) => attend::<Cpu>(cache, qkv, shape),
            Store::Cuda(cache) => attend::<Cuda>(cache, qkv, shape),
        }
    }
}

fn attend<B: Backend>(
    cache: &mut B::Cache,
    qkv: &Matrix,
    shape: &AttentionShape,
) -> Result<Matrix> {
    const NAME: &str = "attention to earlier tokens";
    shape.check(NAME, qkv.rows())?;
    let sequences = shape.starts.len() - 1;
    count(NAME, qkv.shape(), "sequences", sequences, B::cached_sequences(cache))?;
    let wanted = [qkv.rows(), shape.columns()];
    fits(
        qkv.shape() == wanted,
        NAME,
        qkv.shape(),
        wanted,
        "queries, keys and values side by side",
    )?;
    let qkv = At::<B>::new(NAME, qkv).get(qkv)?;
    Ok(B::wrap(B::attend_cached(cache, qkv, shape)?))
}
