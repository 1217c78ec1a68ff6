//! Transformer models in the Hugging Face folder layout. Encoders: BERT, DistilBERT, RoBERTa,
//! XLM-RoBERTa, CamemBERT, MPNet, DeBERTa-v3 and ModernBERT. Decoders: GPT-2, Llama, SmolLM3,
//! Mistral, Qwen2, Qwen3, Gemma 2, Gemma 3 (text) and Phi-3.
//!
//! All of them are represented by one [`Model`]: embeddings, transformer blocks, a final
//! normalization and a task head, described by one file per architecture in [`architecture`]. The
//! backward pass of a layer returns the factors (inputs and output gradients) of per-example
//! gradients ([`Factor`]), which ghost clipping and book-keeping use without materializing the
//! per-example gradients.

pub mod architecture;
mod error;
pub mod explain;
mod factor;
pub mod folder;
pub mod generate;
pub mod layer;
mod memory;
mod network;
mod objective;
mod parameters;
mod pass;
pub mod sanitized;
mod text;
pub mod tuning;

pub use error::{Error, Result};
pub use factor::{Factor, Gradients, Receiver};
pub use layer::head::TaskHead;
pub use memory::{Frozen, TrainingMemory, keeps_gradient, keeps_gradient_of_table};
pub use network::{Forward, ForwardOptions, Model, Network};
pub use objective::{Losses, Objective, RandomizedResponse, Weighting};
pub use parameters::{Origin, Parameter, ParameterId, Parameters};
pub use pass::Pass;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
