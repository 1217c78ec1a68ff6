//! What a store promises: of all stores in `promises.rs`, and of each kind in its own file.

mod postgres;
mod promises;
mod sqlite;

const TASK: crate::hex::Hash = [3; 32];
