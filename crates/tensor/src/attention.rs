//! The shape of scaled dot-product attention over packed sequences.

use super::{Dropout, Error, Result};

/// How scores are computed from queries and keys, and how far a token attends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// Scale of the dot products; `None` for 1/√width.
    pub scale: Option<f32>,
    /// Window of sliding-window (local) attention: a token attends to tokens less than this
    /// distance away.
    pub window: Option<usize>,
    /// The bound c of soft-capping, which maps a score s to c · tanh(s / c).
    pub soft_cap: Option<f32>,
}

impl Scores {
    /// Applies soft-capping to a score.
    pub fn capped(&self, score: f32) -> f32 {
        self.soft_cap.map_or(score, |cap| cap * (score / cap).tanh())
    }
}

/// Head layout and masking of attention over packed sequences.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape<'a> {
    /// Start of each sequence, followed by the end of the last one.
    pub starts: &'a [usize],
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; each serves heads / key_heads query heads.
    pub key_heads: usize,
    /// Features per head.
    pub width: usize,
    /// Whether a token attends only to itself and earlier tokens.
    pub causal: bool,
    /// Dropout on the attention probabilities.
    pub dropout: Option<Dropout>,
    pub scores: Scores,
}

impl AttentionShape<'_> {
    /// Columns of queries, keys and values together.
    pub fn columns(&self) -> usize {
        (self.heads + 2 * self.key_heads) * self.width
    }

    pub fn scale(&self) -> f32 {
        self.scores.scale.unwrap_or_else(|| 1.0 / (self.width as f32).sqrt())
    }

    /// The window, if some sequence is longer than the window.
    pub fn narrow_window(&self) -> Option<usize> {
        let longest = self.starts.windows(2).map(|window| window[1] - window[0]).max();
        self.scores.window.filter(|&window| longest.is_some_and(|longest| longest > window))
    }

    /// Whether scores are plain scaled dot products and every token attends to all tokens that
    /// `causal` allows.
    pub fn is_plain(&self) -> bool {
        self.scores.soft_cap.is_none() && self.narrow_window().is_none()
    }

    /// The range of keys that row `row` of a sequence of `length` tokens attends to.
    pub fn seen(&self, row: usize, length: usize) -> std::ops::Range<usize> {
        let window = self.scores.window.unwrap_or(length).max(1);
        let end = if self.causal { row + 1 } else { length.min(row.saturating_add(window)) };
        (row + 1).saturating_sub(window)..end
    }

    pub fn query(&self, head: usize) -> usize {
        head * self.width
    }

    pub fn key(&self, head: usize) -> usize {
        (self.heads + head / (self.heads / self.key_heads)) * self.width
    }

    pub fn value(&self, head: usize) -> usize {
        self.key(head) + self.key_heads * self.width
    }

    pub fn mask(&self, start: usize, head: usize) -> Option<Dropout> {
        self.dropout.map(|dropout| dropout.fork((start * self.heads + head) as u64))
    }

    /// Checks that the sequences are in order and cover `tokens` tokens, and that query heads share
    /// key heads evenly.
    pub fn check(&self, operation: &'static str, tokens: usize) -> Result<()> {
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
