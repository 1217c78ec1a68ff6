//! Attacks on what was released: a guarantee that nobody tests is a hope.

pub mod inversion;
