//! Using a model: evaluation, prediction, generation, merging of adapters.

mod arguments;
mod continuations;
mod data;
mod eval;
mod generate;
mod keep;
mod located;
mod merge;
mod predict;
mod private;

pub use arguments::{Loaded, ModelArguments};
pub use eval::Eval;
pub use generate::Generate;
pub use merge::Merge;
pub use predict::{Predict, drop_end, prediction_fields};
