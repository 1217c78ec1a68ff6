//! A matrix in the memory of a GPU.

use super::device::{CudaDevice, Gpu};
use super::format::NumberFormat;
use super::launch::{Grid, arguments};
use super::memory::Buffer;
use super::nf4;
use super::source::Source;
use crate::tensor::Host;
use crate::tensor::compact::{Compact, Numbers};
use crate::tensor::error::Result;
use std::ops::Range;
use std::sync::Arc;
use undertone_run::Precision;

/// Rows of numbers on a GPU; possibly some of the rows and columns of a larger matrix, with which
/// it shares them.
#[derive(Clone, Debug)]
pub struct CudaMatrix {
    buffer: Arc<Buffer>,
    /// How its numbers are stored.
    format: NumberFormat,
    /// The precision of products with it, and of activations that are computed from it.
    precision: Precision,
    rows: usize,
    columns: usize,
    /// Distance between the beginnings of two rows, in numbers.
    stride: usize,
    /// Where the first row begins, in numbers.
    offset: usize,
}

impl CudaMatrix {
    /// A new matrix, all of whose numbers the caller writes: what it finds there is arbitrary.
    pub(super) fn new(
        device: CudaDevice,
        format: NumberFormat,
        rows: usize,
        columns: usize,
    ) -> Result<Self> {
        let buffer = device.gpu.allocate(rows * columns * format.bytes())?;
        Ok(Self::from_buffer(device, format, buffer, rows, columns))
    }

    /// As [`Self::new`]; rows of many columns, such as logits, begin at multiples of 16 bytes, so
    /// that tensor cores can be fed with them.
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

    /// All zeros.
    pub(super) fn zeros(
        device: CudaDevice,
        format: NumberFormat,
        rows: usize,
        columns: usize,
    ) -> Result<Self> {
        let buffer = device.gpu.zeros(rows * columns * format.bytes())?;
        Ok(Self::from_buffer(device, format, buffer, rows, columns))
    }

    /// Zeros in f32, as many.
    pub(crate) fn zeros_like(&self) -> Result<Self> {
        Self::zeros(self.device(), NumberFormat::F32, self.rows, self.columns)
    }

    /// A new matrix of the format of this one, likewise; of frozen weights in NF4, in that of
    /// activations.
    pub(super) fn like(&self, rows: usize, columns: usize) -> Result<Self> {
        let format = match self.format {
            NumberFormat::Nf4 => NumberFormat::of_activations(self.precision),
            plain => plain,
        };
        Self::new(self.device(), format, rows, columns)
    }

    /// A new matrix of f32, likewise.
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

    /// A copy of a matrix in main memory.
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
            // Of compact numbers the whole was copied, with what lies around.
            _ => Ok(Self { stride: host.stride(), offset: host.offset(), ..whole }),
        }
    }

    /// A copy in main memory.
    pub(super) fn to_host(&self) -> Result<Host> {
        let dense = self.in_format(NumberFormat::F32)?.dense()?;
        let mut done = Ok(());
        let host = Host::build(self.rows, self.columns, |out| {
            // SAFETY: a dense matrix has as many f32 numbers from its first on.
            done = unsafe { self.gpu().download(dense.pointer(), out) };
        });
        done.map(|()| host)
    }

    /// How its numbers are stored.
    pub(super) fn format(&self) -> NumberFormat {
        self.format
    }

    /// The precision of products with it.
    pub(super) fn precision(&self) -> Precision {
        self.precision
    }

    /// The same numbers, with products in another precision.
    pub(crate) fn with_precision(&self, precision: Precision) -> Self {
        Self { precision, ..self.clone() }
    }

    /// The same numbers in f32, with products in f32.
    pub(crate) fn exact(&self) -> Result<Self> {
        Ok(self.in_format(NumberFormat::F32)?.with_precision(Precision::F32))
    }

    /// The numbers in a format; copied only if they are in another. A weight's copy in bf16 is kept
    /// until the weight changes.
    pub(super) fn in_format(&self, format: NumberFormat) -> Result<Self> {
        match (self.format, format) {
            (from, to) if from == to => Ok(self.clone()),
            (NumberFormat::Nf4, to) => {
                let expanded = Self::new(self.device(), to, self.rows, self.columns)?;
                let from = (&*self.buffer, self.offset, self.stride);
                // SAFETY: the buffer holds NF4 with these rows, and the target is new.
                unsafe { nf4::expand(from, &expanded)? };
                Ok(expanded)
            }
            (NumberFormat::F32, NumberFormat::Bf16) => {
                let buffer = self.buffer.rounded(|| self.round_all())?;
                Ok(Self { buffer, format, ..self.clone() })
            }
            _ => {
                let copy = Self::new(self.device(), format, self.rows, self.columns)?;
                // SAFETY: the copy is as large and nobody else has it yet.
                unsafe { copy.update(self, false)? };
                Ok(copy)
            }
        }
    }

    /// All numbers of the buffer of f32, rounded to bf16.
    fn round_all(&self) -> Result<Buffer> {
        let count = self.buffer.bytes() / NumberFormat::F32.bytes();
        let rounded = self.gpu().allocate(count * NumberFormat::Bf16.bytes())?;
        let arguments = arguments![&*self.buffer, &rounded, count];
        let grid = Grid { blocks: (count.div_ceil(1024), 1), threads: (256, 1), shared: 0 };
        // SAFETY: both have so many numbers, and begin where an allocation begins; the target is
        // new.
        unsafe { self.gpu().launch(Source::Convert.kernel("all_to_bf16"), grid, arguments)? };
        Ok(rounded)
    }

    /// Itself in f32.
    pub(super) fn into_f32(self) -> Result<Self> {
        match self.format {
            NumberFormat::F32 => Ok(self),
            NumberFormat::Bf16 | NumberFormat::Nf4 => self.in_format(NumberFormat::F32),
        }
    }

    /// As [`Self::exclusive`]; also the address of the numbers' copy in bf16, which the caller
    /// writes, or 0 if there is none.
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

    /// Whether its numbers are f32.
    pub(crate) fn is_f32(&self) -> bool {
        self.format == NumberFormat::F32
    }

    /// The same numbers in f32.
    pub(crate) fn expanded(&self) -> Result<Self> {
        self.in_format(NumberFormat::F32)
    }

    /// As a factor of a matrix product: bf16 where that is the precision, and f32 otherwise.
    pub(crate) fn as_factor(&self) -> Result<Self> {
        self.in_format(NumberFormat::of_activations(self.precision))
    }

    /// The GPU that it is on.
    pub(super) fn gpu(&self) -> &'static Gpu {
        self.buffer.gpu()
    }

    /// The device that it is on.
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
        self.buffer.pointer() + (self.offset * self.format.bytes()) as u64
    }

    /// Whether both are the same rows and columns of the same memory, with products of the same
    /// precision.
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

    /// Numbers of a dense matrix from the `start`-th on as a matrix of their own, which shares
    /// them.
    pub(super) fn part(&self, start: usize, rows: usize, columns: usize) -> Self {
        assert!(self.is_dense() && start + rows * columns <= self.rows * self.columns, "a part");
        let offset = self.offset + start;
        Self { rows, columns, stride: columns, offset, ..self.clone() }
    }

    /// The same numbers, row after row, in rows of another length; copied if they are not dense.
    pub(super) fn reshape(&self, [rows, columns]: [usize; 2]) -> Result<Self> {
        assert_eq!(rows * columns, self.rows * self.columns, "numbers of a matrix");
        Ok(Self { rows, columns, stride: columns, ..self.dense()? })
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
        if self.format == NumberFormat::Nf4 {
            return self.in_format(NumberFormat::of_activations(self.precision));
        }
        let copy = self.like(self.rows, self.columns)?;
        // SAFETY: the copy is as large and nobody else has it yet.
        unsafe { copy.update(self, false)? };
        Ok(copy)
    }

    /// Itself, dense and with nobody else who could see a change; copied if need be.
    pub(super) fn exclusive(mut self) -> Result<Self> {
        if self.stride == self.columns
            && let Some(buffer) = Arc::get_mut(&mut self.buffer)
        {
            buffer.changes();
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
            let name = NumberFormat::pair("copy", from.format, self.format);
            self.gpu().launch(Source::Convert.kernel(name), grid, arguments)
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
            let name = NumberFormat::pair("copy", row.format, self.format);
            self.gpu().launch(Source::Convert.kernel(name), grid, arguments)
        }
    }
}
