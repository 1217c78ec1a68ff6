//! Kernels that need instructions of x86-64 processors, and all `unsafe` code that uses them.
//!
//! A function that uses AVX-512, AVX2 or AMX takes a token of [`super::level`], which proves that
//! the processor has the instructions and that the cap on them allows it.

#[cfg(target_os = "linux")]
pub mod amx;
mod blocks;
pub mod chacha;
pub mod detect;
pub mod gemm;
pub mod gram;
mod prefetch;

pub use prefetch::prefetch;
