//! The shape of scaled dot-product attention over packed sequences.

use super::{Dropout, Error, Result};

/// How a score is made of a query and a key, and how far a token sees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// Factor of the dot products; `None` for 1/√width.
    pub scale: Option<f32>,
    /// A token sees those less than so many tokens away: sliding-window or local attention.
    pub window: Option<usize>,
    /// The bound c of soft-capping, which makes a score s into c · tanh(s / c).
    pub soft_cap: Option<f32>,
}

impl Scores {
    /// A score after soft-capping.
    pub fn capped(&self, score: f32) -> f32 {
        self.soft_cap.map_or(score, |cap| cap * (score / cap).tanh())
    }
}

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
    pub scores: Scores,
}

impl AttentionShape<'_> {
    /// Columns of queries, keys and values together.
    pub fn columns(&self) -> usize {
        (self.heads + 2 * self.key_heads) * self.width
    }

    pub(crate) fn scale(&self) -> f32 {
        self.scores.scale.unwrap_or_else(|| 1.0 / (self.width as f32).sqrt())
    }

    /// The window, if any of the sequences is so long that a token does not see all of it.
    pub(crate) fn narrow_window(&self) -> Option<usize> {
        let longest = self.starts.windows(2).map(|window| window[1] - window[0]).max();
        self.scores.window.filter(|&window| longest.is_some_and(|longest| longest > window))
    }

    /// Whether scores are scaled dot products and every token sees all that `causal` lets it see.
    pub(crate) fn is_plain(&self) -> bool {
        self.scores.soft_cap.is_none() && self.narrow_window().is_none()
    }

    /// The keys that row `row` of a sequence of `length` tokens sees.
    pub(crate) fn seen(&self, row: usize, length: usize) -> std::ops::Range<usize> {
        let window = self.scores.window.unwrap_or(length).max(1);
        let end = if self.causal { row + 1 } else { length.min(row.saturating_add(window)) };
        (row + 1).saturating_sub(window)..end
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
