//! Fine-tuning of language models on private text, with a privacy guarantee that is proved.

pub mod audit;
pub mod data;
pub mod evaluate;
pub mod explain;
pub mod gradient;
pub mod mechanism;
pub mod model;
pub mod tensor;
pub mod train;
