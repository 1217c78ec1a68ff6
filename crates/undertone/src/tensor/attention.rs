//! The shape of scaled dot-product attention over packed sequences.

use super::{Dropout, Error, Result};

/// How the columns are divided into heads, and who sees whom.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape<'a> {
    /// Where each sequence begins, and after the last where it ends.
    pub starts: &'a [usize],
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and of values; each serves heads / key_heads heads of queries.
    pub key_heads: usize,
    /// Features of one head.
    pub width: usize,
    /// Whether a token sees only itself and what is before it.
    pub causal: bool,
    /// Dropout of the probabilities.
    pub dropout: Option<Dropout>,
}

impl AttentionShape<'_> {
    /// Columns of queries, keys and values together.
    pub fn columns(&self) -> usize {
        (self.heads + 2 * self.key_heads) * self.width
    }

    pub(crate) fn scale(&self) -> f32 {
        1.0 / (self.width as f32).sqrt()
    }

    pub(crate) fn query(&self, head: usize) -> usize {
        head * self.width
    }

    pub(crate) fn key(&self, head: usize) -> usize {
        (self.heads + head / (self.heads / self.key_heads)) * self.width
    }

    pub(crate) fn value(&self, head: usize) -> usize {
        self.key(head) + self.key_heads * self.width
    }

    pub(crate) fn mask(&self, start: usize, head: usize) -> Option<Dropout> {
        self.dropout.map(|dropout| dropout.fork((start * self.heads + head) as u64))
    }

    /// Whether the sequences are in order and cover `tokens` tokens, and heads share keys evenly.
    pub(crate) fn check(&self, operation: &'static str, tokens: usize) -> Result<()> {
        let covers = self.starts.first() == Some(&0)
            && self.starts.last() == Some(&tokens)
            && self.starts.is_sorted();
        if !covers {
            let problem = format!("sequences must cover {tokens} tokens in order");
            return Err(Error::Layout { operation, problem });
        }
        if self.key_heads == 0 || !self.heads.is_multiple_of(self.key_heads) {
            let (heads, key_heads) = (self.heads, self.key_heads);
            let problem = format!("{heads} heads cannot share {key_heads} heads of keys evenly");
            return Err(Error::Layout { operation, problem });
        }
        Ok(())
    }
}
