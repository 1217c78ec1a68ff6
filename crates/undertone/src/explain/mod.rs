//! What a model's answer rests on: relevance of its parameters.

pub mod contribution;
pub mod relevance;
