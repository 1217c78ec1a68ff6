//! The clipped sum over all ranks, from which each rank gets the coordinates that it updates.

use super::sum::ClippedSum;
use crate::collective::{Ranks, Shards, Slice, part_length};
use crate::error::Result;
use crate::model::{self, Parameters};
use crate::tensor::{Host, Matrix};

impl ClippedSum {
    /// Returns the sum over all ranks, added in rank order, of each [`Slice`] of this rank, in the
    /// slice's shape. The exchange runs bucket by bucket, so a rank never holds the whole sum in
    /// addition to its own, which is freed along the way.
    pub fn reduce_scatter(
        self,
        ranks: &Ranks,
        shards: &Shards,
        parameters: &Parameters,
    ) -> Result<Vec<Matrix>> {
        let mut sums = self.take();
        let mut own = Vec::new();
        for bucket in shards.buckets() {
            let longest = bucket.iter().map(|part| part_length(part)).max().unwrap_or(0);
            // The parts have equal length; a parameter without a gradient on this rank counts as
            // zeros.
            let mut values = vec![0.0; longest * bucket.len()];
            for (rank, part) in bucket.iter().enumerate() {
                let mut at = rank * longest;
                for Slice { parameter, range } in part {
                    let sum = &mut sums[parameter.index()];
                    if let Some(matrix) = sum.take() {
                        let host = matrix.to_host().map_err(model::Error::from)?;
                        values[at..at + range.len()].copy_from_slice(&host.dense()[range.clone()]);
                        let is_last = range.end == host.rows() * host.columns();
                        *sum = (!is_last).then_some(Matrix::Host(host));
                    }
                    at += range.len();
                }
            }
            let summed = ranks.reduce_scatter(&values)?;
            drop(values);
            let mut at = 0;
            for slice in &bucket[ranks.rank()] {
                let device = parameters.value(slice.parameter).device();
                let numbers = &summed[at..at + slice.range.len()];
                at += slice.range.len();
                let [rows, columns] = slice.shape();
                let sum = Host::build(rows, columns, |out| out.copy_from_slice(numbers));
                own.push(Matrix::Host(sum).to_device(&device).map_err(model::Error::from)?);
            }
        }
        Ok(own)
    }
}
