//! Tests of stores: `promises.rs` covers all of them, and each kind also has its own file.

mod postgres;
mod promises;
mod sqlite;

const TASK: crate::hex::Hash = [3; 32];
