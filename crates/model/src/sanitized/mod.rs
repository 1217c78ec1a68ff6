//! Models with a [sanitizer](crate::layer::sanitizer) (local DP): attaching, saving and loading.
//!
//! The folder of such a model or adapter contains `sanitizer.json` and `sanitizer.safetensors` next
//! to its weights.

mod attach;
mod folder;

pub use attach::{SanitizerConfig, attach, rows_alone, set, with_decoder};
pub use folder::{load_sanitizer, read_config, save_sanitizer};
