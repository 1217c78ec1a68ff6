//! Models with a [sanitiser](crate::model::layer::sanitiser): put in, saved and loaded.
//!
//! A folder that has `sanitiser.json` and `sanitiser.safetensors` beside its weights, be it a model
//! or an adapter, holds such a model.

mod attach;
mod folder;

pub use attach::{SanitiserConfig, attach, rows_alone, set, with_decoder};
pub use folder::{load_sanitiser, read_config, save_sanitiser};
