//! Tokenized examples and their targets.

use std::ops::Range;

/// A tokenized sequence with its target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Example {
    /// Token ids, at least one.
    pub tokens: Vec<u32>,
    /// Segment (token type) id of each token; empty means segment 0 for all tokens.
    pub segments: Vec<u32>,
    pub target: Target,
    /// The privacy unit to which the example belongs: its row in the file, or its author.
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
    /// Causal language modeling: each of `tokens[from..]`, given the tokens before it; `1 ≤ from <
    /// tokens.len()`.
    Next {
        /// Position of the first token to be predicted.
        from: usize,
    },
    /// Causal language modeling of selected tokens, such as the assistant's turns: the tokens in
    /// these ranges, each given all tokens before it.
    Spans(Vec<Range<usize>>),
    /// Masked language modeling: the original tokens at the masked positions.
    Masked {
        /// Masked positions, in increasing order.
        positions: Vec<u32>,
        /// Original token ids at these positions.
        labels: Vec<u32>,
    },
}
