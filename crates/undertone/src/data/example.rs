//! Tokenised examples and their targets.

use std::ops::Range;

/// One tokenised sequence with its target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Example {
    /// Token ids, at least one.
    pub tokens: Vec<u32>,
    /// Segment (token type) id of each token; empty means that all are 0.
    pub segments: Vec<u32>,
    pub target: Target,
    /// The privacy unit that the example belongs to: its row in the file, or its author.
    pub unit: u32,
}

/// What the model is trained to predict for an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// No target is known.
    #[default]
    None,
    /// Classification: the class of the whole sequence.
    Class(u32),
    /// Causal language modelling: each of `tokens[from..]`, given the tokens before it; `1 ≤ from <
    /// tokens.len()`.
    Next {
        /// Position of the first token to be predicted.
        from: usize,
    },
    /// Causal language modelling of some tokens, such as the assistant's turns: those in the
    /// ranges, each given all tokens before it.
    Spans(Vec<Range<usize>>),
    /// Masked language modelling: the original tokens at the masked positions.
    Masked {
        /// Masked positions, in increasing order.
        positions: Vec<u32>,
        /// Original token ids at these positions.
        labels: Vec<u32>,
    },
}
