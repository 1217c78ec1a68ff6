//! Layers with their forward and backward passes. A backward pass emits the factors of its
//! parameters' gradients.
//!
//! A layer's `forward` returns the activations that its `backward` needs as a value of a dedicated
//! type. There is no autograd graph that could miss a layer's derivative: a layer without
//! `backward` cannot be composed into a block.

pub mod adapter;
pub mod attention;
pub mod block;
pub mod disentangled;
pub mod dora;
pub mod embedding;
pub mod feed_forward;
pub mod head;
pub mod head_norms;
pub mod linear;
pub mod norm;
pub mod position_bias;
pub mod relative_positions;
pub mod sanitizer;
pub mod used_twice;
