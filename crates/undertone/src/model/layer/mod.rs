//! Layers: each knows its forward pass, its backward pass, and hands out the factors of its
//! parameters' gradients.
//!
//! A layer's `forward` returns what its `backward` needs as a value of a type of its own. There is
//! no graph that could miss a layer's derivative: what has no `backward` cannot be composed into a
//! block.

pub mod adapter;
pub mod attention;
pub mod block;
pub mod embedding;
pub mod feed_forward;
pub mod head;
pub mod linear;
pub mod norm;
pub mod sanitiser;
