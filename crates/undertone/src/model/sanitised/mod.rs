//! Models with a [sanitiser](crate::model::layer::sanitiser) (local DP): attach, save and load it.
//!
//! The folder of such a model or adapter has `sanitiser.json` and `sanitiser.safetensors` beside
//! its weights.

mod attach;
mod folder;

pub use attach::{SanitiserConfig, attach, rows_alone, set, with_decoder};
pub use folder::{load_sanitiser, read_config, save_sanitiser};
