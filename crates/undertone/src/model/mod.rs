//! Models: BERT, DistilBERT, RoBERTa, GPT-2 and Llama-style decoders, in the Hugging Face folder
//! layout.
//!
//! All of them are one [`Model`]: embeddings, transformer blocks, a final normalisation and a task
//! head, described by one file per architecture in [`architecture`]. The backward pass of a layer
//! returns the factors (inputs and output gradients) of per-example gradients ([`Factor`]), which
//! ghost clipping and book-keeping use without forming the per-example gradients themselves.

pub mod architecture;
mod error;
mod factor;
pub mod folder;
pub mod generate;
pub mod layer;
mod memory;
mod network;
mod objective;
mod parameters;
mod pass;
pub mod sanitised;
mod text;
pub mod tuning;

pub use error::{Error, Result};
pub use factor::{Factor, Gradients, Receiver};
pub use layer::head::TaskHead;
pub use memory::{Frozen, TrainingMemory};
pub use network::{Forward, ForwardOptions, Model, Network};
pub use objective::{Losses, Objective, RandomisedResponse, Weighting};
pub use parameters::{Origin, Parameter, ParameterId, Parameters};
pub use pass::Pass;
