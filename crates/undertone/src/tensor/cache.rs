//! Keys and values of earlier tokens, while sequences are generated token by token.

use super::backend::{At, Backend};
use super::cpu::Cpu;
use super::cuda::Cuda;
use super::error::{count, fits};
use super::{AttentionShape, Device, Matrix, Result};

/// Keys and values of one layer for every sequence that is being continued.
#[derive(Clone, Debug)]
pub struct KeyValueCache(Store);

#[derive(Clone, Debug)]
enum Store {
    Host(<Cpu as Backend>::Cache),
    Cuda(<Cuda as Backend>::Cache),
}

impl KeyValueCache {
    /// Nothing seen yet of so many sequences.
    pub fn new(device: &Device, sequences: usize) -> Self {
        Self(match device {
            Device::Cpu => Store::Host(Cpu::new_cache(sequences)),
            Device::Cuda(_) => Store::Cuda(Cuda::new_cache(sequences)),
        })
    }

    /// Sequence `i` becomes a copy of what sequence `origins[i]` was; sequences may so be dropped,
    /// repeated and reordered.
    pub fn select(&mut self, origins: &[usize]) {
        match &mut self.0 {
            Store::Host(cache) => Cpu::select(cache, origins),
            Store::Cuda(cache) => Cuda::select(cache, origins),
        }
    }

    /// Remembers the new tokens and lets each see everything up to itself.
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
