//! A matrix in main memory.

use super::compact::{Compact, Nf4, Numbers};
use super::cpu::parallel;
use super::pool::Buffer;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// A matrix in main memory; possibly a view of some rows and columns of a larger matrix, with which
/// it shares the data.
#[derive(Clone, Debug)]
pub struct Host {
    rows: usize,
    columns: usize,
    stride: usize,
    offset: usize,
    storage: Storage,
}

#[derive(Clone, Debug)]
enum Storage {
    /// f32.
    Plain(Arc<Buffer>),
    /// Frozen weights.
    Compact(Arc<Compact>),
}

impl Host {
    /// Takes ownership of row-major values.
    ///
    /// # Panics
    /// If the number of values is not rows × columns.
    pub fn from_vec(rows: usize, columns: usize, values: Vec<f32>) -> Self {
        assert_eq!(rows * columns, values.len(), "{rows} × {columns} values");
        Self {
            rows,
            columns,
            stride: columns,
            offset: 0,
            storage: Storage::Plain(Arc::new(Buffer::from_vec(values))),
        }
    }

    /// Takes ownership of bf16 values, the upper halves of f32 values.
    ///
    /// # Panics
    /// If the number of values is not rows × columns.
    pub fn from_bf16(rows: usize, columns: usize, bits: Vec<u16>) -> Self {
        assert_eq!(rows * columns, bits.len(), "{rows} × {columns} values");
        Self::from_numbers(rows, columns, Numbers::Bf16(bits))
    }

    /// Quantizes to NF4.
    pub fn in_nf4(&self) -> Self {
        let nf4 = match self.compact().filter(|compact| self.is_all_of(compact)) {
            // Part by part, so that the whole matrix is never expanded to f32.
            Some(compact) => {
                Nf4::quantize_in_parts(compact.len(), |first, out| compact.expand(first, out))
            }
            None => Nf4::quantize(&self.dense()),
        };
        Self::from_numbers(self.rows, self.columns, Numbers::Nf4(nf4))
    }

    /// A matrix in NF4 with these codes, two per byte; its std is `std` if the codes are uniformly
    /// distributed.
    ///
    /// # Panics
    /// If there is not a byte for every two values.
    pub fn from_nf4_codes(rows: usize, columns: usize, codes: Vec<u8>, std: f32) -> Self {
        let nf4 = Nf4::from_codes(rows * columns, codes, std);
        Self::from_numbers(rows, columns, Numbers::Nf4(nf4))
    }

    fn from_numbers(rows: usize, columns: usize, numbers: Numbers) -> Self {
        let storage = Storage::Compact(Arc::new(Compact::new(numbers)));
        Self { rows, columns, stride: columns, offset: 0, storage }
    }

    /// A new matrix, every value of which `fill` must write: the buffer's initial contents are
    /// arbitrary.
    pub fn build(rows: usize, columns: usize, fill: impl FnOnce(&mut [f32])) -> Self {
        let mut buffer = Buffer::with_length(rows * columns);
        fill(&mut buffer.values_mut()[..rows * columns]);
        let storage = Storage::Plain(Arc::new(buffer));
        Self { rows, columns, stride: columns, offset: 0, storage }
    }

    /// The compact storage, if these are frozen weights in fewer bits than f32.
    pub(crate) fn compact(&self) -> Option<&Compact> {
        match &self.storage {
            Storage::Plain(_) => None,
            Storage::Compact(compact) => Some(compact),
        }
    }

    fn is_all_of(&self, compact: &Compact) -> bool {
        self.stride == self.columns && self.rows * self.columns == compact.len()
    }

    /// The same values in f32; shares the data if it is already f32.
    pub fn expanded(&self) -> Self {
        let Some(compact) = self.compact() else { return self.clone() };
        Self::build(self.rows, self.columns, |out| {
            parallel::rows(
                out,
                self.columns,
                #[inline(always)]
                |first, out| {
                    for (i, out) in out.chunks_exact_mut(self.columns).enumerate() {
                        compact.expand(self.offset + (first + i) * self.stride, out);
                    }
                },
            );
        })
    }

    /// Copies one row to `out`, expanding it to f32.
    #[inline(always)]
    pub fn write_row(&self, row: usize, out: &mut [f32]) {
        match &self.storage {
            Storage::Plain(_) => out.copy_from_slice(self.row(row)),
            Storage::Compact(compact) => {
                assert!(row < self.rows && out.len() == self.columns, "row {row}");
                compact.expand(self.offset + row * self.stride, out);
            }
        }
    }

    /// The whole buffer that this matrix is a view of.
    fn values(&self) -> &[f32] {
        match &self.storage {
            Storage::Plain(buffer) => buffer.values(),
            Storage::Compact(compact) => compact.expanded(),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Index of the first value in the shared buffer.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether both are views of the same rows and columns of the same memory.
    pub fn is_same(&self, other: &Self) -> bool {
        let shared = match (&self.storage, &other.storage) {
            (Storage::Plain(left), Storage::Plain(right)) => Arc::ptr_eq(left, right),
            (Storage::Compact(left), Storage::Compact(right)) => Arc::ptr_eq(left, right),
            _ => false,
        };
        shared
            && (self.rows, self.columns, self.stride, self.offset)
                == (other.rows, other.columns, other.stride, other.offset)
    }

    /// Distance between the starts of consecutive rows.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// From the first value of the first row to the last value of the last row, including whatever
    /// lies between rows.
    pub fn span(&self) -> &[f32] {
        if self.rows == 0 || self.columns == 0 {
            return &[];
        }
        &self.values()[self.offset..self.offset + (self.rows - 1) * self.stride + self.columns]
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let start = self.offset + row * self.stride;
        &self.values()[start..start + self.columns]
    }

    /// Whether the rows are contiguous.
    pub fn is_dense(&self) -> bool {
        self.stride == self.columns || self.rows <= 1
    }

    /// The values in row-major order; copied only if the rows are not contiguous.
    pub fn dense(&self) -> Cow<'_, [f32]> {
        if self.compact().is_some() {
            return Cow::Owned(self.expanded().span().to_vec());
        }
        if self.is_dense() {
            return Cow::Borrowed(self.span());
        }
        Cow::Owned((0..self.rows).flat_map(|row| self.row(row).iter().copied()).collect())
    }

    /// The values for in-place modification, if they are not shared and the rows are contiguous.
    pub fn exclusive(&mut self) -> Option<&mut [f32]> {
        if !self.is_dense() {
            return None;
        }
        let range = self.offset..self.offset + self.rows * self.columns;
        match &mut self.storage {
            Storage::Plain(buffer) => {
                Arc::get_mut(buffer).map(|buffer| &mut buffer.values_mut()[range])
            }
            Storage::Compact(_) => None,
        }
    }

    /// The values for in-place modification; copied first if they are shared.
    pub fn values_mut(&mut self) -> &mut [f32] {
        if self.exclusive().is_none() {
            let copy =
                Self::build(self.rows, self.columns, |out| out.copy_from_slice(&self.dense()));
            *self = copy;
        }
        self.exclusive().expect("a fresh copy is dense and not shared")
    }

    pub fn column_range(&self, columns: Range<usize>) -> Self {
        assert!(columns.end <= self.columns, "columns {columns:?} of {}", self.columns);
        Self { columns: columns.len(), offset: self.offset + columns.start, ..self.clone() }
    }

    /// Reshapes in row-major order; copies if the rows are not contiguous.
    pub fn reshape(&self, [rows, columns]: [usize; 2]) -> Self {
        assert_eq!(rows * columns, self.rows * self.columns, "numbers of a matrix");
        let dense = match self.is_dense() {
            true => self.clone(),
            false => Self::build(self.rows, self.columns, |out| {
                out.copy_from_slice(&self.dense());
            }),
        };
        Self { rows, columns, stride: columns, ..dense }
    }

    pub fn row_range(&self, rows: Range<usize>) -> Self {
        assert!(rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        Self { rows: rows.len(), offset: self.offset + rows.start * self.stride, ..self.clone() }
    }
}
