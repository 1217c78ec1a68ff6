//! Using a model: evaluation, prediction, generation, merging of adapters.

mod arguments;
mod continuations;
mod eval;
mod generate;
mod keep;
mod merge;
mod predict;
mod private;

pub use arguments::{Loaded, ModelArguments};
pub use eval::Eval;
pub use generate::Generate;
pub use merge::Merge;
pub use predict::Predict;
