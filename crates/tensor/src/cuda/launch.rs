//! Kernel launches.

use super::device::{Gpu, failed};
use super::format::NumberFormat;
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::source::Kernel;
use crate::error::{Error, Result};
use cudarc::driver::result;
use std::marker::PhantomData;
use std::sync::Arc;

/// An argument of a kernel: eight bytes, of which a kernel reads the size of its parameter. The
/// lifetime of an address is tied to the memory that it points to: memory freed before the launch
/// could belong to something else by then.
#[derive(Clone, Copy)]
pub struct Argument<'a>(u64, PhantomData<&'a ()>);

impl From<usize> for Argument<'_> {
    fn from(size: usize) -> Self {
        Self(size as u64, PhantomData)
    }
}

impl From<u64> for Argument<'_> {
    fn from(number: u64) -> Self {
        Self(number, PhantomData)
    }
}

impl From<bool> for Argument<'_> {
    fn from(yes: bool) -> Self {
        Self(u64::from(yes), PhantomData)
    }
}

impl From<f32> for Argument<'_> {
    fn from(number: f32) -> Self {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&number.to_ne_bytes());
        Self(u64::from_ne_bytes(bytes), PhantomData)
    }
}

impl From<f64> for Argument<'_> {
    fn from(number: f64) -> Self {
        Self(number.to_bits(), PhantomData)
    }
}

impl<'a> From<&'a Arc<Buffer>> for Argument<'a> {
    fn from(buffer: &'a Arc<Buffer>) -> Self {
        Self(buffer.pointer(), PhantomData)
    }
}

/// The address, or null.
impl<'a> From<Option<&'a Buffer>> for Argument<'a> {
    fn from(buffer: Option<&'a Buffer>) -> Self {
        Self(buffer.map_or(0, Buffer::pointer), PhantomData)
    }
}

impl<'a> From<&'a Buffer> for Argument<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Self(buffer.pointer(), PhantomData)
    }
}

/// The address of the first value.
impl<'a> From<&'a CudaMatrix> for Argument<'a> {
    fn from(matrix: &'a CudaMatrix) -> Self {
        Self(matrix.pointer(), PhantomData)
    }
}

/// The address, or null.
impl<'a> From<Option<&'a CudaMatrix>> for Argument<'a> {
    fn from(matrix: Option<&'a CudaMatrix>) -> Self {
        Self(matrix.map_or(0, CudaMatrix::pointer), PhantomData)
    }
}

/// `arguments![a, b, …]`: an array of [`Argument`]s.
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => {
        &[$($crate::cuda::launch::Argument::from($argument)),*]
    };
}
pub(super) use arguments;

/// The number of blocks and of threads per block.
#[derive(Clone, Copy)]
pub struct Grid {
    pub blocks: (usize, usize),
    pub threads: (u32, u32),
    /// Bytes of dynamic shared memory per block, in addition to what the kernel declares.
    pub shared: u32,
}

impl Grid {
    /// One block per row of `columns` columns, which is read in packs of up to eight values; the
    /// packs are divided evenly among the threads.
    pub fn rows(rows: usize, columns: usize) -> Self {
        let packs = columns.div_ceil(8);
        let threads = packs.div_ceil(packs.div_ceil(256).max(1));
        let threads = threads.next_multiple_of(32).clamp(64, 256);
        Self { blocks: (rows, 1), threads: (threads as u32, 1), shared: 0 }
    }

    /// One warp per row, with at most four packs of 16 bytes per thread; for wider rows one block,
    /// with one thread per pack.
    pub fn packed_rows(rows: usize, columns: usize, format: NumberFormat) -> Self {
        let packs = columns.div_ceil(16 / format.bytes());
        if packs <= 4 * 32 {
            return Self { blocks: (rows.div_ceil(8), 1), threads: (32, 8), shared: 0 };
        }
        let threads = packs.next_multiple_of(32).clamp(32, 256);
        Self { blocks: (rows, 1), threads: (threads as u32, 1), shared: 0 }
    }

    /// One block of 256 threads per row.
    pub fn wide_rows(rows: usize) -> Self {
        Self { blocks: (rows, 1), threads: (256, 1), shared: 0 }
    }
}

impl Gpu {
    /// Enqueues a kernel on the stream. An empty grid does nothing.
    ///
    /// # Safety
    /// The arguments must match the kernel's parameters in number, order and type. With this grid,
    /// the kernel must stay within the memory that they point to, which nothing else may write.
    pub unsafe fn launch(&self, kernel: Kernel, grid: Grid, arguments: &[Argument]) -> Result<()> {
        let (Ok(across), Ok(down)) = (u32::try_from(grid.blocks.0), u32::try_from(grid.blocks.1))
        else {
            return Err(Error::Unsupported(format!("{} with this number of blocks", kernel.name)));
        };
        let blocks = (across, down, 1);
        if blocks.0 == 0 || blocks.1 == 0 {
            return Ok(());
        }
        let threads = (grid.threads.0, grid.threads.1, 1);
        let function = self.function(kernel, grid.shared)?;
        let mut pointers: Vec<_> = arguments
            .iter()
            .map(|argument| std::ptr::from_ref(&argument.0).cast_mut().cast())
            .collect();
        let stream = self.stream()?.cu_stream();
        // SAFETY: guaranteed by the caller; the arguments live until the driver has copied them,
        // which it does before it returns.
        unsafe {
            result::launch_kernel(
                function.cu_function(),
                blocks,
                threads,
                grid.shared,
                stream,
                &mut pointers,
            )
        }
        .map_err(|error| failed(kernel.name, error))
    }
}
