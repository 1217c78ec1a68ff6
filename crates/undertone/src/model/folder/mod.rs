//! Model folders in the Hugging Face layout: config.json, model.safetensors (one file or several
//! shards), tokenizer.json.

mod config;
mod hub;
mod load;
mod reading;
mod save;
mod source;
mod weights;

pub use config::Config;
pub use hub::{is_at_hand, locate};
pub use load::{LoadOptions, load};
pub use reading::Reading;
pub use save::{save, save_tensors};
pub use source::{Random, Source};
pub use weights::Weights;
