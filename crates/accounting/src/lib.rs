//! wip
mod bounds;
mod error;
mod event;
pub mod gaussian;
mod normal;
pub mod pld;

pub use bounds::Bounds;
pub use error::{Error, Result};
pub use event::{Adjacency, Composition, Event, Part, limits};
