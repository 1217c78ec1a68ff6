//! A matrix in the memory of a GPU.

use super::device::{CudaDevice, Gpu};
use super::launch::{Grid, arguments};
use super::memory::Buffer;
use super::source::Source;
use crate::tensor::Host;
use crate::tensor::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// Rows of numbers on a GPU; possibly some of the rows and columns of a larger matrix, with which
/// it shares them.
#[derive(Clone, Debug)]
pub struct CudaMatrix {
    buffer: Arc<Buffer>,
    rows: usize,
    columns: usize,
    /// Distance between the beginnings of two rows, in numbers.
    stride: usize,
    /// Where the first row begins, in numbers.
    offset: usize,
}

/// Bytes of one number.
const NUMBER: usize = size_of::<f32>();

impl CudaMatrix {
    /// A new matrix, all of whose numbers the caller writes: what it finds there is arbitrary.
    pub(super) fn new(gpu: &'static Gpu, rows: usize, columns: usize) -> Result<Self> {
        Ok(Self::from_buffer(gpu.allocate(rows * columns * NUMBER)?, rows, columns))
    }

    /// All zeros.
    pub(super) fn zeros(gpu: &'static Gpu, rows: usize, columns: usize) -> Result<Self> {
        Ok(Self::from_buffer(gpu.zeros(rows * columns * NUMBER)?, rows, columns))
    }

    fn from_buffer(buffer: Buffer, rows: usize, columns: usize) -> Self {
        Self { buffer: Arc::new(buffer), rows, columns, stride: columns, offset: 0 }
    }

    /// A copy of a matrix in main memory.
    pub(super) fn from_host(gpu: &'static Gpu, host: &Host) -> Result<Self> {
        Ok(Self::from_buffer(gpu.upload(&host.dense()[..])?, host.rows(), host.columns()))
    }

    /// A copy in main memory.
    pub(super) fn to_host(&self) -> Result<Host> {
        let dense = self.dense()?;
        let mut done = Ok(());
        let host = Host::build(self.rows, self.columns, |out| {
            // SAFETY: a dense matrix has as many numbers from its first on.
            done = unsafe { self.gpu().download(dense.pointer(), out) };
        });
        done.map(|()| host)
    }

    /// The GPU that it is on.
    pub(super) fn gpu(&self) -> &'static Gpu {
        self.buffer.gpu()
    }

    /// The device that it is on.
    pub fn device(&self) -> CudaDevice {
        CudaDevice(self.gpu())
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Distance between the beginnings of two rows, in numbers.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Whether it has no number.
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    /// The address of its first number.
    pub(super) fn pointer(&self) -> u64 {
        self.buffer.pointer() + (self.offset * NUMBER) as u64
    }

    /// Whether both are the same rows and columns of the same memory.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer)
            && (self.rows, self.columns, self.stride, self.offset)
                == (other.rows, other.columns, other.stride, other.offset)
    }

    pub(super) fn row_range(&self, rows: Range<usize>) -> Self {
        assert!(rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        Self { rows: rows.len(), offset: self.offset + rows.start * self.stride, ..self.clone() }
    }

    pub(super) fn column_range(&self, columns: Range<usize>) -> Self {
        assert!(columns.end <= self.columns, "columns {columns:?} of {}", self.columns);
        Self { columns: columns.len(), offset: self.offset + columns.start, ..self.clone() }
    }

    /// Whether the rows lie end to end.
    fn is_dense(&self) -> bool {
        self.stride == self.columns || self.rows <= 1
    }

    /// The rows laid end to end; copied only if they are not already.
    pub(super) fn dense(&self) -> Result<Self> {
        if self.is_dense() { Ok(self.clone()) } else { self.copied() }
    }

    /// A dense copy.
    pub(super) fn copied(&self) -> Result<Self> {
        let copy = Self::new(self.gpu(), self.rows, self.columns)?;
        // SAFETY: the copy is as large and nobody else has it yet.
        unsafe { copy.update(self, false)? };
        Ok(copy)
    }

    /// Itself, dense and with nobody else who could see a change; copied if need be.
    pub(super) fn exclusive(mut self) -> Result<Self> {
        if self.stride == self.columns && Arc::get_mut(&mut self.buffer).is_some() {
            return Ok(self);
        }
        self.copied()
    }

    /// Overwrites this matrix with another of its shape, or adds that.
    ///
    /// # Safety
    /// Nobody else has these numbers.
    pub(super) unsafe fn update(&self, from: &Self, add: bool) -> Result<()> {
        assert_eq!((self.rows, self.columns), (from.rows, from.columns), "sizes of a copy");
        if self.is_empty() {
            return Ok(());
        }
        let arguments = arguments![from, from.stride, self, self.stride, self.columns, add];
        // SAFETY: both have these rows and columns, and nobody else has the target.
        unsafe {
            let grid = Grid::rows(self.rows, self.columns);
            self.gpu().launch(Source::Rows.kernel("copy"), grid, arguments)
        }
    }

    /// Writes the same row to every row.
    ///
    /// # Safety
    /// Nobody else has these numbers.
    pub(super) unsafe fn fill_rows(&self, row: &Self) -> Result<()> {
        assert_eq!((1, self.columns), (row.rows, row.columns), "a row for all rows");
        if self.is_empty() {
            return Ok(());
        }
        let arguments = arguments![row, 0_usize, self, self.stride, self.columns, false];
        // SAFETY: with stride 0 every row of the source is its only one, which has as many columns;
        // nobody else has the target.
        unsafe {
            let grid = Grid::rows(self.rows, self.columns);
            self.gpu().launch(Source::Rows.kernel("copy"), grid, arguments)
        }
    }
}
