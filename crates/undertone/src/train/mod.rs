//! From a plan to a trained model.

mod learner;
pub mod optimiser;

pub use learner::{Learner, Step};
