//! Contains no code: see Cargo.toml.
