//! Kernels that need specific x86-64 instructions, and all `unsafe` code that uses them.
//!
//! A function that uses AVX-512, AVX2 or AMX takes a token from [`super::level`], which proves that
//! the processor supports the instructions and that the cap allows them.

#[cfg(target_os = "linux")]
pub mod amx;
mod blocks;
pub mod chacha;
pub mod detect;
pub mod gemm;
pub mod gram;
mod prefetch;

pub use prefetch::prefetch;
