//! Models: BERT, DistilBERT, RoBERTa, GPT-2 and Llama-style decoders, in the layout of Hugging Face
//! folders.
//!
//! All of them are one [`Model`]: embeddings, blocks, a last normalisation and a head, described by
//! a file of its own in [`architecture`]. Its layers hand out the factors of per-example gradients
//! ([`Factor`]).

pub mod architecture;
mod error;
mod factor;
pub mod folder;
pub mod generate;
pub mod layer;
mod network;
mod objective;
mod parameters;
mod pass;
pub mod sanitised;
mod text;
pub mod tuning;

pub use error::{Error, Result};
pub use factor::{Factor, Gradients, Receiver};
pub use layer::head::Purpose;
pub use network::{Conditions, Forward, Model, Network};
pub use objective::{FlippedLabels, Objective, Weighting};
pub use parameters::{Origin, Parameter, ParameterId, Parameters};
pub use pass::Pass;
