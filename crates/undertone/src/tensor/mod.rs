//! Matrices of `f32` and the operations that the layers are made of.
//!
//! Everything a layer computes on is a matrix: one row for each token of a batch (sequences laid
//! end to end, without padding), one column for each feature. A matrix lives either on the host,
//! where the operations are fused, multi-threaded kernels of our own (`cpu`), or on a candle
//! device, where they are composed of candle's operations (`device`). The second kind is how a GPU
//! is used, and on candle's CPU device it is the slow reference that the kernels are tested
//! against.

pub(crate) mod cpu;
pub(crate) mod device;
mod host;
mod ops;
mod output;
mod pages;
mod place;
mod pool;
pub mod unit_norms;

pub use cpu::activation::Activation;
pub use cpu::attention::AttentionShape;
pub use cpu::dropout::Dropout;
#[cfg(target_arch = "x86_64")]
pub(crate) use cpu::level::Avx512;
pub use cpu::level::{CpuLevel, UnknownCpuLevel};
pub use cpu::panels::Panels;
pub use host::Host;
pub use ops::*;
pub use output::{Operand, Output};
pub use place::Place;
pub use pool::release_idle_memory;

/// The [level](CpuLevel) of the kernels: together with the number of threads it decides the last
/// digits of a result.
pub fn kernels() -> &'static str {
    CpuLevel::current().name()
}

/// A failed tensor operation: only a device can fail, by running out of memory or by being absent.
pub type Result<T> = std::result::Result<T, candle_core::Error>;

/// Rows and columns of numbers, on the host or on a device. Cloning shares the numbers.
#[derive(Clone, Debug)]
pub enum Matrix {
    /// In main memory.
    Host(Host),
    /// On a candle device, always of rank two.
    Device(candle_core::Tensor),
}

impl Matrix {
    /// A matrix in main memory from its rows laid end to end.
    ///
    /// # Panics
    /// If the number of values is not rows × columns.
    pub fn from_vec(rows: usize, columns: usize, values: Vec<f32>) -> Self {
        Self::Host(Host::from_vec(rows, columns, values))
    }

    /// All zeros, in main memory.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self::from_vec(rows, columns, vec![0.0; rows * columns])
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Self::Host(host) => host.rows(),
            Self::Device(tensor) => tensor.dims()[0],
        }
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        match self {
            Self::Host(host) => host.columns(),
            Self::Device(tensor) => tensor.dims()[1],
        }
    }

    /// Whether both are the same rows and columns of the same memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host(one), Self::Host(other)) => one.is_same(other),
            (Self::Device(one), Self::Device(other)) => one.id() == other.id(),
            _ => false,
        }
    }

    /// Where it lives.
    pub fn place(&self) -> Place {
        match self {
            Self::Host(_) => Place::Host,
            Self::Device(tensor) => Place::Device(tensor.device().clone()),
        }
    }

    /// The same numbers at another place; shares them if they are there already.
    pub fn to_place(&self, place: &Place) -> Result<Self> {
        match (self, place) {
            (Self::Host(_), Place::Host) => Ok(self.clone()),
            (Self::Host(host), Place::Device(device)) => {
                let values = host.dense().into_owned();
                Ok(Self::Device(candle_core::Tensor::from_vec(
                    values,
                    (host.rows(), host.columns()),
                    device,
                )?))
            }
            (Self::Device(tensor), Place::Device(device)) => {
                Ok(Self::Device(tensor.to_device(device)?))
            }
            (Self::Device(_), Place::Host) => {
                Ok(Self::from_vec(self.rows(), self.columns(), self.to_vec()?))
            }
        }
    }

    /// The same numbers in main memory; shares them if they are there already.
    pub fn to_host(&self) -> Result<Host> {
        match self {
            Self::Host(host) => Ok(host.clone()),
            Self::Device(_) => Ok(Host::from_vec(self.rows(), self.columns(), self.to_vec()?)),
        }
    }

    /// The numbers, row after row.
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        match self {
            Self::Host(host) => Ok(host.dense().into_owned()),
            // candle slices beyond the end of an empty tensor that is part of another.
            Self::Device(tensor) if tensor.elem_count() == 0 => Ok(Vec::new()),
            Self::Device(tensor) => tensor.flatten_all()?.to_vec1(),
        }
    }

    /// Some of the columns, sharing the numbers.
    pub fn column_range(&self, columns: std::ops::Range<usize>) -> Result<Self> {
        match self {
            Self::Host(host) => Ok(Self::Host(host.column_range(columns))),
            Self::Device(tensor) => {
                Ok(Self::Device(tensor.narrow(1, columns.start, columns.len())?))
            }
        }
    }

    /// Some of the rows, sharing the numbers.
    pub fn row_range(&self, rows: std::ops::Range<usize>) -> Result<Self> {
        match self {
            Self::Host(host) => Ok(Self::Host(host.row_range(rows))),
            Self::Device(tensor) => Ok(Self::Device(tensor.narrow(0, rows.start, rows.len())?)),
        }
    }
}
