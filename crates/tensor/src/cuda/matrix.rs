//! A matrix in the memory of a GPU.

use super::device::{CudaDevice, Gpu};
use super::format::NumberFormat;
use super::launch::{Grid, arguments};
use super::memory::Buffer;
use super::nf4;
use super::source::Source;
use crate::Host;
use crate::Precision;
use crate::compact::{Compact, Numbers};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// A matrix on a GPU; possibly a view of some rows and columns of a larger matrix, with which it
/// shares the data.
#[derive(Clone, Debug)]
pub struct CudaMatrix {
    buffer: Arc<Buffer>,
    /// The storage format.
    format: NumberFormat,
    /// The precision of products with this matrix, and of activations computed from it.
    precision: Precision,
    rows: usize,
    columns: usize,
    /// Distance between the starts of consecutive rows, in values.
    stride: usize,
    /// Start of the first row, in values.
    offset: usize,
}

impl CudaMatrix {
    /// A new matrix, every value of which the caller must write: its initial contents are
    /// arbitrary.
    pub(super) fn new(
        device: CudaDevice,
        format: NumberFormat,
        rows: usize,
        columns: usize,
    ) -> Result<Self> {
        let buffer = device.gpu.allocate(rows * columns * format.bytes())?;
        Ok(Self::from_buffer(device, format, buffer, rows, columns))
    }

    /// Like [`Self::new`], but rows of many columns, such as logits, start at multiples of 16
    /// bytes, as tensor cores require.
    pub(super) fn new_padded(
        device: CudaDevice,
        format: NumberFormat,
        rows: usize,
        columns: usize,
    ) -> Result<Self> {
        if columns < 1024 || format == NumberFormat::F32 {
            return Self::new(device, format, rows, columns);
        }
        let stride = columns.next_multiple_of(8);
        let buffer = device.gpu.allocate(rows * stride * format.bytes())?;
        Ok(Self { stride, ..Self::from_buffer(device, format, buffer, rows, columns) })
    }

    /// A matrix of zeros.
    pub(super) fn zeros(
        device: CudaDevice,
        format: NumberFormat,
        rows: usize,
        columns: usize,
    ) -> Result<Self> {
        let buffer = device.gpu.zeros(rows * columns * format.bytes())?;
        Ok(Self::from_buffer(device, format, buffer, rows, columns))
    }

    /// A matrix of f32 zeros of the same shape.
    pub(crate) fn zeros_like(&self) -> Result<Self> {
        Self::zeros(self.device(), NumberFormat::F32, self.rows, self.columns)
    }

    /// A new uninitialized matrix in the format of this one; for frozen weights in NF4, in the
    /// format of activations.
    pub(super) fn like(&self, rows: usize, columns: usize) -> Result<Self> {
        let format = match self.format {
            NumberFormat::Nf4 => NumberFormat::of_activations(self.precision),
            plain => plain,
        };
        Self::new(self.device(), format, rows, columns)
    }

    /// A new uninitialized matrix in f32.
    pub(super) fn like_f32(&self, rows: usize, columns: usize) -> Result<Self> {
        Self::new(self.device(), NumberFormat::F32, rows, columns)
    }

    fn from_buffer(
        device: CudaDevice,
        format: NumberFormat,
        buffer: Buffer,
        rows: usize,
        columns: usize,
    ) -> Self {
        let (buffer, precision) = (Arc::new(buffer), device.precision());
        Self { buffer, format, precision, rows, columns, stride: columns, offset: 0 }
    }

    /// Copies a matrix from main memory.
    pub(super) fn from_host(device: CudaDevice, host: &Host) -> Result<Self> {
        let (rows, columns) = (host.rows(), host.columns());
        let (buffer, format) = match host.compact().map(Compact::numbers) {
            None => (device.gpu.upload(&host.dense()[..])?, NumberFormat::F32),
            Some(Numbers::Bf16(bits)) => (device.gpu.upload(bits)?, NumberFormat::Bf16),
            Some(Numbers::Nf4(nf4)) => (nf4::upload(device.gpu, nf4)?, NumberFormat::Nf4),
        };
        let whole = Self::from_buffer(device, format, buffer, rows, columns);
        match format {
            NumberFormat::F32 => Ok(whole),
            // Compact values are copied as a whole, including those outside the view.
            _ => Ok(Self { stride: host.stride(), offset: host.offset(), ..whole }),
        }
    }

    /// Copies the matrix to main memory.
    pub(super) fn to_host(&self) -> Result<Host> {
        let dense = self.in_format(NumberFormat::F32)?.dense()?;
        let mut done = Ok(());
        let host = Host::build(self.rows, self.columns, |out| {
            // SAFETY: a dense matrix has this many f32 values starting at its first.
            done = unsafe { self.gpu().download(dense.pointer(), out) };
        });
        done.map(|()| host)
    }

    /// The storage format.
    pub(super) fn format(&self) -> NumberFormat {
        self.format
    }

    /// The precision of products with this matrix.
    pub(super) fn precision(&self) -> Precision {
        self.precision
    }

    /// The same values, with products in another precision.
    pub(crate) fn with_precision(&self, precision: Precision) -> Self {
        Self { precision, ..self.clone() }
    }

    /// The same values in f32, with products in f32.
    pub(crate) fn exact(&self) -> Result<Self> {
        Ok(self.in_format(NumberFormat::F32)?.with_precision(Precision::F32))
    }

    /// The values in the given format; copied only if they are in another one. The bf16 copy of a
    /// weight is cached until the weight changes.
    pub(super) fn in_format(&self, format: NumberFormat) -> Result<Self> {
        match (self.format, format) {
            (from, to) if from == to => Ok(self.clone()),
            (NumberFormat::Nf4, to) => {
                let expanded = Self::new(self.device(), to, self.rows, self.columns)?;
                let from = (&*self.buffer, self.offset, self.stride);
                // SAFETY: the buffer holds these rows in NF4, and the target is new.
                unsafe { nf4::expand(from, &expanded)? };
                Ok(expanded)
            }
            (NumberFormat::F32, NumberFormat::Bf16) => {
                let buffer = self.buffer.rounded(|| self.round_all())?;
                Ok(Self { buffer, format, ..self.clone() })
            }
            _ => {
                let copy = Self::new(self.device(), format, self.rows, self.columns)?;
                // SAFETY: the copy has the same shape and is not shared yet.
                unsafe { copy.update(self, false)? };
                Ok(copy)
            }
        }
    }

    /// All values of the f32 buffer, rounded to bf16.
    fn round_all(&self) -> Result<Buffer> {
        let count = self.buffer.bytes() / NumberFormat::F32.bytes();
        let rounded = self.gpu().allocate(count * NumberFormat::Bf16.bytes())?;
        let arguments = arguments![&*self.buffer, &rounded, count];
        let grid = Grid { blocks: (count.div_ceil(1024), 1), threads: (256, 1), shared: 0 };
        // SAFETY: both have this many values and start at the beginning of an allocation; the
        // target is new.
        unsafe { self.gpu().launch(Source::Convert.kernel("all_to_bf16"), grid, arguments)? };
        Ok(rounded)
    }

    /// Converts the matrix to f32.
    pub(super) fn into_f32(self) -> Result<Self> {
        match self.format {
            NumberFormat::F32 => Ok(self),
            NumberFormat::Bf16 | NumberFormat::Nf4 => self.in_format(NumberFormat::F32),
        }
    }

    /// Like [`Self::exclusive`]; also returns the address of the cached bf16 copy, which the caller
    /// must update, or 0 if there is none.
    pub(super) fn exclusive_with_rounded(mut self) -> Result<(Self, u64)> {
        let bytes = self.rows * self.columns * self.format.bytes();
        if self.stride == self.columns
            && bytes == self.buffer.bytes()
            && let Some(buffer) = Arc::get_mut(&mut self.buffer)
            && let Some(address) = buffer.rounded_alone()
        {
            return Ok((self, address));
        }
        Ok((self.exclusive()?, 0))
    }

    /// Whether the values are f32.
    pub(crate) fn is_f32(&self) -> bool {
        self.format == NumberFormat::F32
    }

    /// The same values in f32.
    pub(crate) fn expanded(&self) -> Result<Self> {
        self.in_format(NumberFormat::F32)
    }

    /// The matrix as a factor of a matrix product: bf16 if that is the precision, and f32
    /// otherwise.
    pub(crate) fn as_factor(&self) -> Result<Self> {
        self.in_format(NumberFormat::of_activations(self.precision))
    }

    /// The GPU that holds the matrix.
    pub(super) fn gpu(&self) -> &'static Gpu {
        self.buffer.gpu()
    }

    /// The device that holds the matrix.
    pub fn device(&self) -> CudaDevice {
        CudaDevice::of(self.gpu(), self.precision)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Distance between the starts of consecutive rows, in values.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Whether the matrix has no values.
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    /// The address of the first value.
    pub(super) fn pointer(&self) -> u64 {
        self.buffer.pointer() + (self.offset * self.format.bytes()) as u64
    }

    /// Whether both are views of the same rows and columns of the same memory, with products in the
    /// same precision.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer)
            && self.precision == other.precision
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

    /// A view of the values of a dense matrix starting at index `start`, as a matrix of the given
    /// shape.
    pub(super) fn part(&self, start: usize, rows: usize, columns: usize) -> Self {
        assert!(self.is_dense() && start + rows * columns <= self.rows * self.columns, "a part");
        let offset = self.offset + start;
        Self { rows, columns, stride: columns, offset, ..self.clone() }
    }

    /// Reshapes in row-major order; copies if the rows are not contiguous.
    pub(super) fn reshape(&self, [rows, columns]: [usize; 2]) -> Result<Self> {
        assert_eq!(rows * columns, self.rows * self.columns, "numbers of a matrix");
        Ok(Self { rows, columns, stride: columns, ..self.dense()? })
    }

    /// Whether the rows are contiguous.
    fn is_dense(&self) -> bool {
        self.stride == self.columns || self.rows <= 1
    }

    /// The matrix with contiguous rows; copied only if they are not already.
    pub(super) fn dense(&self) -> Result<Self> {
        if self.is_dense() { Ok(self.clone()) } else { self.copied() }
    }

    /// A dense copy.
    pub(super) fn copied(&self) -> Result<Self> {
        if self.format == NumberFormat::Nf4 {
            return self.in_format(NumberFormat::of_activations(self.precision));
        }
        let copy = self.like(self.rows, self.columns)?;
        // SAFETY: the copy has the same shape and is not shared yet.
        unsafe { copy.update(self, false)? };
        Ok(copy)
    }

    /// The matrix itself, dense and exclusively owned; copied if necessary.
    pub(super) fn exclusive(mut self) -> Result<Self> {
        if self.stride == self.columns
            && let Some(buffer) = Arc::get_mut(&mut self.buffer)
        {
            buffer.changes();
            return Ok(self);
        }
        self.copied()
    }

    /// Overwrites this matrix with another of the same shape, or adds the other.
    ///
    /// # Safety
    /// The data of this matrix must not be shared.
    pub(super) unsafe fn update(&self, from: &Self, add: bool) -> Result<()> {
        assert_eq!((self.rows, self.columns), (from.rows, from.columns), "sizes of a copy");
        if self.is_empty() {
            return Ok(());
        }
        let arguments = arguments![from, from.stride, self, self.stride, self.columns, add];
        // SAFETY: both have these rows and columns, and the target is not shared.
        unsafe {
            let grid = Grid::rows(self.rows, self.columns);
            let name = NumberFormat::pair("copy", from.format, self.format);
            self.gpu().launch(Source::Convert.kernel(name), grid, arguments)
        }
    }

    /// Writes the same row to every row.
    ///
    /// # Safety
    /// The data of this matrix must not be shared.
    pub(super) unsafe fn fill_rows(&self, row: &Self) -> Result<()> {
        assert_eq!((1, self.columns), (row.rows, row.columns), "a row for all rows");
        if self.is_empty() {
            return Ok(());
        }
        let arguments = arguments![row, 0_usize, self, self.stride, self.columns, false];
        // SAFETY: with stride 0, every source row is its only row, which has this many columns; the
        // target is not shared.
        unsafe {
            let grid = Grid::rows(self.rows, self.columns);
            let name = NumberFormat::pair("copy", row.format, self.format);
            self.gpu().launch(Source::Convert.kernel(name), grid, arguments)
        }
    }
}
