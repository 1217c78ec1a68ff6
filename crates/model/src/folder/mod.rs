//! Model folders in the Hugging Face layout: `config.json`, `model.safetensors` (one file or
//! several shards) and `tokenizer.json`.

mod config;
mod hub;
mod index;
mod load;
mod numbers;
mod outline;
mod reading;
mod save;
mod source;
mod tensor_file;
mod weights;

pub use config::Config;
pub use hub::{BaseModel, is_at_hand, locate};
pub use load::{LoadOptions, load};
pub use outline::Outline;
pub use reading::Reading;
pub use save::{SHARD_BYTES, copy_tokenizer, save, save_like, save_tensors};
pub use source::{Random, Source};
pub use weights::Weights;
