//! Relative position bias of attention scores (MPNet): one number per head and distance bucket, in
//! a table shared by all blocks.

use crate::factor::{Factor, Receiver};
use crate::parameters::ParameterId;
use crate::pass::Pass;
use std::sync::Arc;
use undertone_tensor::{self as tensor, Matrix, Output, Relative, Result};

/// Distance from which on all distances fall into the last bucket.
const MOST_DISTANT: f64 = 128.0;

#[derive(Clone, Debug)]
pub struct PositionBias {
    /// `[buckets, heads]`.
    pub table: ParameterId,
    pub buckets: usize,
    pub heads: usize,
}

/// Inputs for attention, used in both passes.
#[derive(Clone, Debug)]
pub struct Saved {
    buckets: Vec<u32>,
    /// The table flattened to a row, repeated for each token.
    of_queries: Matrix,
    heads: usize,
}

impl Saved {
    pub fn terms(&self) -> Relative<'_> {
        Relative {
            buckets: &self.buckets,
            of_queries: &self.of_queries,
            of_keys: None,
            head_stride: 1,
            bucket_stride: self.heads,
        }
    }
}

impl PositionBias {
    /// The bucket of a query and a key. Each direction has half of the buckets, of which half are
    /// for individual distances and half grow with the logarithm of the distance.
    pub fn bucket(&self, query: usize, key: usize) -> u32 {
        let half = self.buckets / 2;
        let exact = half / 2;
        let distance = query.abs_diff(key);
        let direction = if query < key { half } else { 0 };
        let within = if distance < exact {
            distance
        } else {
            // In f32, because the reference rounds before truncating.
            let octaves = (distance as f32 / exact as f32).ln();
            let all = (MOST_DISTANT / exact as f64).ln() as f32;
            (exact + (octaves / all * (half - exact) as f32) as usize).min(half - 1)
        };
        (direction + within) as u32
    }

    /// The bias that the table adds to the scores.
    pub fn forward(&self, pass: &Pass) -> Result<Saved> {
        let lengths = pass.starts.windows(2).map(|window| window[1] - window[0]);
        let longest = lengths.max().unwrap_or(1).max(1);
        let behind = (1..longest).rev().map(|distance| self.bucket(0, distance));
        let buckets = behind.chain((0..longest).map(|distance| self.bucket(distance, 0))).collect();
        let table = pass.parameters.value(self.table);
        let columns = self.buckets * self.heads;
        let tokens = pass.starts.last().copied().unwrap_or_default();
        let mut of_queries = Output::new(&table.device(), tokens, columns);
        of_queries.fill_rows(0..columns, &table.reshape_to_columns(columns)?)?;
        Ok(Saved { buckets, of_queries: of_queries.finish()?, heads: self.heads })
    }

    /// Emits the factor of the table, with one row per bucket and sequence.
    pub fn backward(
        &self,
        pass: &Pass,
        gradient: &Matrix,
        receiver: &mut dyn Receiver,
    ) -> Result<()> {
        if !pass.parameters.is_trainable(self.table) {
            return Ok(());
        }
        let windows = || pass.starts.windows(2).enumerate();
        let sequences: Vec<u32> = windows()
            .flat_map(|(i, window)| std::iter::repeat_n(i as u32, window[1] - window[0]))
            .collect();
        let sums = tensor::scatter(gradient, &sequences, pass.starts.len().saturating_sub(1))?;
        let firsts = windows().map(|(_, window)| window[0] as u32);
        let tokens = firsts.flat_map(|first| std::iter::repeat_n(first, self.buckets)).collect();
        let indices = windows().flat_map(|_| 0..self.buckets as u32).collect();
        receiver.receive(Factor::Rows {
            parameter: self.table,
            indices,
            output_gradient: sums.reshape_to_columns(self.heads)?,
            tokens: Some(Arc::new(tokens)),
        })
    }
}
