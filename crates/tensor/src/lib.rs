//! Matrices of `f32` and the operations that layers are built from.
//!
//! Everything a layer computes on is a matrix `[tokens, features]`: one row per token of a batch
//! (sequences are packed end to end, without padding) and one column per feature. Each operation
//! (`ops`) runs on the backend that its operands belong to, and `backend` is the contract that
//! every backend implements: `cpu` has our own fused, multi-threaded kernels for matrices in main
//! memory ([`Host`]); `cuda` has our own kernels for NVIDIA GPUs ([`CudaMatrix`]) and uses cuBLAS
//! for matrix products.

mod activation;
mod attention;
mod backend;
mod cache;
mod compact;
mod coordinate_weights;
mod cpu;
mod cuda;
mod device;
mod dropout;
mod error;
mod gradient_means;
mod host;
mod likely;
pub mod noise;
mod norm;
mod ops;
mod output;
mod pages;
mod pool;
mod precision;
#[cfg(test)]
mod random;
mod relative;
mod row_weights;
pub mod unit_norms;
mod update;

pub use activation::Activation;
pub use attention::{AttentionShape, Scores};
pub use cache::KeyValueCache;
pub use coordinate_weights::CoordinateWeights;
#[cfg(target_arch = "x86_64")]
pub(crate) use cpu::level::Avx512;
pub use cpu::level::{CpuLevel, CpuLevelError};
pub use cpu::panels::Panels;
pub use cpu::simd;
pub use cuda::{CudaDevice, CudaMatrix, CudaReport, FoundLibrary, GpuReport, HasEnded, Nccl};
pub use device::Device;
pub use dropout::Dropout;
pub use error::{Error, Result, Shape};
pub use gradient_means::{GradientMeans, GradientStatistic, NoisyGradient, gradient_means};
pub use host::Host;
pub use likely::{Likely, likely, sample};
pub use norm::{NormKind, Normalized};
pub use ops::*;
pub use output::{Operand, Output, product};
pub use pages::return_freed_memory;
pub use pool::{release_idle_memory, unused_room};
pub use precision::Precision;
pub use relative::{Relative, RelativeGradients};
pub use row_weights::RowWeights;
pub use update::{
    NoiseOfRelease, ParameterUpdate, Rule, Stds, UpdateState, release_and_update, write_products,
};

use backend::{Backend, on_backend};
use std::ops::Range;

/// Name of the instruction-set [level](CpuLevel) of the CPU kernels. Together with the number of
/// threads, it determines the last digits of a result.
pub fn kernels() -> &'static str {
    CpuLevel::current().name()
}

/// Collects the results of `body` for each index below `count`, on all cores.
pub fn parallel_map<T: Send>(count: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    cpu::parallel::map(count, body)
}

/// A matrix of numbers on a device. Cloning shares the data.
#[derive(Clone, Debug)]
pub enum Matrix {
    /// In main memory.
    Host(Host),
    /// On an NVIDIA GPU.
    Cuda(CudaMatrix),
}

impl Matrix {
    /// Creates a matrix in main memory from row-major values.
    ///
    /// # Panics
    /// If the number of values is not rows × columns.
    pub fn from_vec(rows: usize, columns: usize, values: Vec<f32>) -> Self {
        Self::Host(Host::from_vec(rows, columns, values))
    }

    /// Creates a matrix in main memory whose values stay in bf16, given as the upper halves of f32
    /// values.
    ///
    /// # Panics
    /// If the number of values is not rows × columns.
    pub fn from_bf16(rows: usize, columns: usize, bits: Vec<u16>) -> Self {
        Self::Host(Host::from_bf16(rows, columns, bits))
    }

    /// A matrix of zeros in main memory.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self::from_vec(rows, columns, vec![0.0; rows * columns])
    }

    /// A matrix of f32 zeros of the same shape on the same device.
    pub fn zeros_like(&self) -> Result<Self> {
        match self {
            Self::Host(_) => Ok(Self::zeros(self.rows(), self.columns())),
            Self::Cuda(matrix) => Ok(Self::Cuda(matrix.zeros_like()?)),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.shape()[0]
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.shape()[1]
    }

    /// Rows and columns.
    pub fn shape(&self) -> Shape {
        match self {
            Self::Host(host) => cpu::Cpu::shape(host),
            Self::Cuda(matrix) => cuda::Cuda::shape(matrix),
        }
    }

    /// Whether both are views of the same rows and columns of the same memory.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host(left), Self::Host(right)) => cpu::Cpu::is_same(left, right),
            (Self::Cuda(left), Self::Cuda(right)) => cuda::Cuda::is_same(left, right),
            _ => false,
        }
    }

    /// The device that holds the matrix.
    pub fn device(&self) -> Device {
        match self {
            Self::Host(_) => Device::Cpu,
            Self::Cuda(matrix) => Device::Cuda(matrix.device()),
        }
    }

    /// The same values on another device; shares the data if it is already there.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        match device {
            Device::Cpu => Ok(Self::Host(cpu::Cpu::from_host(&self.to_host()?, &())?)),
            Device::Cuda(device) => match self {
                Self::Cuda(matrix) if matrix.device().ordinal() == device.ordinal() => {
                    Ok(Self::Cuda(matrix.with_precision(device.precision())))
                }
                _ => Ok(Self::Cuda(cuda::Cuda::from_host(&self.to_host()?, device)?)),
            },
        }
    }

    /// The same values in main memory; shares the data if it is already there.
    pub fn to_host(&self) -> Result<Host> {
        on_backend!("copy to the CPU", self, |B, at| B::to_host(at.get(self)?))
    }

    /// The values in row-major order.
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        Ok(self.to_host()?.dense().into_owned())
    }

    /// Quantizes to NF4, four bits per value; for frozen weights.
    pub fn in_nf4(&self) -> Result<Self> {
        Self::Host(self.to_host()?.in_nf4()).to_device(&self.device())
    }

    /// The same values in f32; shares the data if it is already f32.
    pub fn expanded(&self) -> Result<Self> {
        match self {
            Self::Host(host) => Ok(Self::Host(host.expanded())),
            Self::Cuda(matrix) => Ok(Self::Cuda(matrix.expanded()?)),
        }
    }

    /// Converts f32 values to the format in which matrix products of their precision read them:
    /// bf16 on a GPU that computes in bf16. Values stored in fewer bits stay unchanged.
    pub fn as_factor(&self) -> Result<Self> {
        match self {
            Self::Cuda(matrix) if matrix.is_f32() => Ok(Self::Cuda(matrix.as_factor()?)),
            _ => Ok(self.clone()),
        }
    }

    /// The same values in f32, with matrix products in f32; for values that must not be rounded.
    pub fn exact(&self) -> Result<Self> {
        match self {
            Self::Host(_) => Ok(self.clone()),
            Self::Cuda(matrix) => Ok(Self::Cuda(matrix.exact()?)),
        }
    }

    /// A view of a range of columns.
    pub fn column_range(&self, columns: Range<usize>) -> Result<Self> {
        const NAME: &str = "selection of columns";
        inside(NAME, self, "column", &columns, self.columns())?;
        on_backend!(NAME, self, |B, at| Ok(B::wrap(B::column_range(at.get(self)?, columns)?)))
    }

    /// Reshapes to rows of `columns` values, in row-major order; shares the data if it is
    /// contiguous.
    pub fn reshape_to_columns(&self, columns: usize) -> Result<Self> {
        const NAME: &str = "rows of another length";
        let [rows, before] = self.shape();
        let numbers = rows * before;
        if columns == 0 || !numbers.is_multiple_of(columns) {
            let problem = format!("{numbers} numbers in rows of {columns}");
            return Err(Error::Layout { operation: NAME, problem });
        }
        let shape = [numbers / columns, columns];
        on_backend!(NAME, self, |B, at| Ok(B::wrap(B::reshape(at.get(self)?, shape)?)))
    }

    /// A view of a range of rows.
    pub fn row_range(&self, rows: Range<usize>) -> Result<Self> {
        const NAME: &str = "selection of rows";
        inside(NAME, self, "row", &rows, self.rows())?;
        on_backend!(NAME, self, |B, at| Ok(B::wrap(B::row_range(at.get(self)?, rows)?)))
    }
}

/// Checks that a range of rows or columns lies within a matrix.
fn inside(
    operation: &'static str,
    matrix: &Matrix,
    what: &'static str,
    range: &Range<usize>,
    size: usize,
) -> Result<()> {
    if range.start <= range.end && range.end <= size {
        return Ok(());
    }
    let index = range.end.max(range.start + 1) - 1;
    Err(Error::Index { operation, matrix: matrix.shape(), what, index })
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
