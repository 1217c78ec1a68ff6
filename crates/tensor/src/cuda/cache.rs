//! Cached keys and values of earlier tokens on a GPU.

use super::attention;
use super::device::Gpu;
use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::source::Source;
use crate::AttentionShape;
use crate::error::{Error, Result};
use std::sync::Arc;

/// Keys and values of one layer, per sequence.
#[derive(Clone, Debug)]
pub struct CudaCache {
    sequences: Vec<Sequence>,
}

/// Rows `[key, value]` of one sequence, with spare capacity. Copies of a sequence share them until
/// one of them grows.
#[derive(Clone, Debug, Default)]
struct Sequence {
    rows: Option<Arc<Buffer>>,
    length: usize,
    capacity: usize,
}

impl Sequence {
    /// Makes room for `new` more rows of `bytes` bytes each, in unshared memory.
    fn grow(&mut self, gpu: &'static Gpu, new: usize, bytes: usize) -> Result<()> {
        let alone = self.rows.as_mut().is_some_and(|rows| Arc::get_mut(rows).is_some());
        let needed = self.length + new;
        if alone && needed <= self.capacity {
            return Ok(());
        }
        let capacity = needed.next_power_of_two().max(64);
        let rows = gpu.allocate(capacity * bytes)?;
        if let Some(old) = &self.rows {
            // SAFETY: the old memory has `length` rows, and the new memory is a different
            // allocation with at least as many.
            unsafe { gpu.copy(old.pointer(), rows.pointer(), self.length * bytes)? };
        }
        (self.rows, self.capacity) = (Some(Arc::new(rows)), capacity);
        Ok(())
    }
}

impl CudaCache {
    pub fn new(sequences: usize) -> Self {
        Self { sequences: vec![Sequence::default(); sequences] }
    }

    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.sequences.len()
    }

    /// Adds empty sequences behind the others.
    pub fn add(&mut self, count: usize) {
        self.sequences.resize(self.sequences.len() + count, Sequence::default());
    }

    /// Replaces sequence `i` by a copy of the former sequence `origins[i]`.
    pub fn select(&mut self, origins: &[usize]) {
        self.sequences = origins.iter().map(|&origin| self.sequences[origin].clone()).collect();
    }

    /// Appends the keys and values of the new tokens, then lets their queries attend to everything
    /// up to themselves.
    pub fn attend(&mut self, qkv: &CudaMatrix, shape: &AttentionShape) -> Result<CudaMatrix> {
        let (gpu, heads, width) = (qkv.gpu(), shape.heads, shape.width);
        let columns = 2 * shape.key_heads * width;
        let fresh = self.sequences.iter().all(|sequence| sequence.length == 0);
        let mut places = Vec::with_capacity(2 * qkv.rows());
        for (number, (sequence, window)) in
            self.sequences.iter_mut().zip(shape.starts.windows(2)).enumerate()
        {
            let new = window[1] - window[0];
            sequence.grow(gpu, new, columns * qkv.format().bytes())?;
            for position in sequence.length..sequence.length + new {
                places.extend([number as u32, position as u32]);
            }
            sequence.length += new;
        }
        let rows: Vec<u64> = self
            .sequences
            .iter()
            .map(|sequence| sequence.rows.as_ref().map_or(0, |rows| rows.pointer()))
            .collect();
        let (places, rows) = (gpu.upload(&places)?, gpu.upload(&rows)?);
        let arguments = arguments![qkv, qkv.stride(), heads * width, columns, &places, &rows];
        let kernel = Source::Cache(qkv.format()).kernel("cache_append");
        // SAFETY: every position lies within its sequence's memory, which is not shared; qkv has
        // one row per position.
        unsafe { gpu.launch(kernel, Grid::rows(qkv.rows(), columns), arguments)? };
        if fresh {
            // Nothing is cached yet: this is attention among the new tokens.
            let shape = AttentionShape { causal: true, dropout: None, ..*shape };
            return Ok(attention::forward(qkv, None, &shape)?.0);
        }
        if width > 256 {
            let problem = format!("heads of {width} features on a GPU: 256 are the most");
            return Err(Error::Unsupported(problem));
        }
        let output = qkv.like(qkv.rows(), heads * width)?;
        let arguments = arguments![
            qkv,
            qkv.stride(),
            heads,
            shape.key_heads,
            width,
            shape.scale(),
            shape.scores.window.unwrap_or_default(),
            shape.scores.soft_cap.unwrap_or_default(),
            &places,
            &rows,
            &output,
        ];
        let kernel = Source::Cache(qkv.format()).kernel("cache_attend");
        let grid = Grid { blocks: (qkv.rows(), heads), threads: (128, 1), shared: 0 };
        // SAFETY: every position and all earlier ones have been written in their sequence's memory;
        // the output is new.
        unsafe { gpu.launch(kernel, grid, arguments)? };
        Ok(output)
    }
}
