//! Explanations of a model's output: relevance of its parameters and contributions of its input
//! tokens.

pub mod contribution;
pub mod relevance;
