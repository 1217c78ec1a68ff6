//! Models with a [sanitizer](crate::layer::sanitiser) (local DP): attaching, saving and loading.
//!
//! The folder of such a model or adapter contains `sanitiser.json` and `sanitiser.safetensors` next
//! to its weights.

mod attach;
mod folder;

pub use attach::{SanitiserConfig, attach, rows_alone, set, with_decoder};
pub use folder::{load_sanitiser, read_config, save_sanitiser};
