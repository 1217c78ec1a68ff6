//! Fused, multi-threaded CPU kernels.
//!
//! Each kernel is a plain loop over slices that the compiler vectorizes; [`simd::widest`] compiles
//! it for several instruction sets and picks the widest one that the machine supports at run time,
//! so that a portable build is as fast as a native one.

pub mod activation;
pub mod attention;
mod backend;
pub mod cache;
mod compact_product;
mod dots;
mod draft;
pub mod dropout;
mod few_rows;
mod gemm;
mod gradient_means;
pub mod level;
mod likely;
pub mod loss;
pub mod matmul;
pub mod norm;
pub mod panels;
pub mod parallel;
pub mod rotary;
pub mod rows;
mod scored_attention;
pub mod simd;
mod soft_cap;
mod team;
pub mod unit_norms;
mod update;
pub mod view;
#[cfg(target_arch = "x86_64")]
pub mod x86;

pub use backend::Cpu;
