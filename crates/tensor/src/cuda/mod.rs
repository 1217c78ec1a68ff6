//! The backend for NVIDIA GPUs: our own kernels, and matrix products by cuBLAS.
//!
//! The driver, NVRTC and cuBLAS are loaded when a GPU is first used ([`library`]), so that the same
//! binary runs with and without them. The kernels are CUDA C files in `kernels/`, compiled by NVRTC
//! for the GPU at hand and stored in the user's cache folder ([`compile`]).
//!
//! All work on a GPU, including memory management ([`memory`]), is enqueued on one stream in the
//! order of the calls: freed memory is reused by later work on the stream. The host waits for the
//! GPU only where it reads values back: matrices copied to main memory, losses and norms.
//!
//! No kernel sums in an order that depends on timing, so results are identical from run to run on
//! the same GPU model.
#![allow(unsafe_code)]
#![warn(clippy::undocumented_unsafe_blocks)]

mod activation;
mod attention;
mod backend;
mod cache;
mod compile;
mod device;
mod format;
mod fused;
mod gradient_means;
mod launch;
mod library;
mod likely;
mod loss;
mod matrix;
mod memory;
mod nccl;
mod nf4;
mod norm;
mod products;
mod report;
mod rotary;
mod rows;
mod source;
mod unit_norms;
mod update;

pub use backend::Cuda;
pub use device::CudaDevice;
pub(super) use device::Gpu;
pub use matrix::CudaMatrix;
pub(super) use memory::Buffer;
pub use nccl::{HasEnded, Nccl};
pub use products::batch_invariant;
pub use report::{CudaReport, FoundLibrary, GpuReport};
pub use unit_norms::CudaPerUnit;
