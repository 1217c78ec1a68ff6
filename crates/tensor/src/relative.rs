//! Relative-position terms of attention scores, which depend on the distance between query and key.

use super::Matrix;
use super::error::{Error, Result};

/// Relative-position terms: the pair of query i and key j adds to the score of head h the values of
/// row i and of row j for the bucket of the distance i − j.
#[derive(Clone, Copy, Debug)]
pub struct Relative<'a, M = Matrix> {
    /// The bucket of each distance, from 1 − n to n − 1 for sequences of at most n tokens.
    pub buckets: &'a [u32],
    /// Terms of each query, `[tokens, columns]`: the term of a head and bucket is in column `head ·
    /// head_stride + bucket · bucket_stride`.
    pub of_queries: &'a M,
    /// Terms of each key, in the same layout.
    pub of_keys: Option<&'a M>,
    pub head_stride: usize,
    pub bucket_stride: usize,
}

/// Gradients with respect to queries, keys and values, and to the relative-position terms.
#[derive(Clone, Debug)]
pub struct RelativeGradients<M = Matrix> {
    pub qkv: M,
    pub of_queries: M,
    pub of_keys: Option<M>,
}

impl<M> Relative<'_, M> {
    /// Index of distance 0 in `buckets`.
    pub fn middle(&self) -> usize {
        self.buckets.len() / 2
    }

    /// The column of a head for a query and a key.
    pub fn column(&self, head: usize, query: usize, key: usize) -> usize {
        let bucket = self.buckets[query + self.middle() - key] as usize;
        head * self.head_stride + bucket * self.bucket_stride
    }

    /// Checks that every distance in the sequences has a bucket and every bucket a column.
    pub fn check(
        &self,
        operation: &'static str,
        starts: &[usize],
        heads: usize,
        columns: usize,
    ) -> Result<()> {
        let longest = starts.windows(2).map(|window| window[1] - window[0]).max().unwrap_or(0);
        let bucket = self.buckets.iter().max().map_or(0, |&bucket| bucket as usize);
        let last = heads.saturating_sub(1) * self.head_stride + bucket * self.bucket_stride;
        let fits = self.buckets.len() % 2 == 1 && longest <= self.middle() + 1 && last < columns;
        if fits {
            return Ok(());
        }
        let problem = format!(
            "{} buckets of distances in sequences of at most {longest} tokens, and column {last} \
             of {columns}",
            self.buckets.len()
        );
        Err(Error::Layout { operation, problem })
    }
}
