//! What a model learns from: a sequence of tokens and what it should say about them.

/// One sequence of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Example {
    /// The tokens, at least one.
    pub tokens: Vec<u32>,
    /// For each token, the text of a pair that it belongs to; empty means that all are 0.
    pub segments: Vec<u32>,
    /// What is to be predicted.
    pub target: Target,
    /// The privacy unit that the example belongs to: its row in the file, or its author.
    pub unit: u32,
}

/// What a model is to predict of an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// Nothing is known.
    #[default]
    None,
    /// The class of the whole sequence.
    Class(u32),
    /// Each of `tokens[from..]` from the tokens before it; `1 ≤ from < tokens.len()`.
    Next {
        /// The first token that is to be predicted.
        from: usize,
    },
    /// The tokens that were hidden, at their positions.
    Masked {
        /// Where tokens were hidden, in increasing order.
        positions: Vec<u32>,
        /// What stood there.
        labels: Vec<u32>,
    },
}
