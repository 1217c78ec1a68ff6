//! A matrix in main memory.

use super::pool::Buffer;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Rows of numbers in main memory; possibly some of the rows and columns of a larger matrix, with
/// which it shares them.
#[derive(Clone, Debug)]
pub struct Host {
    rows: usize,
    columns: usize,
    stride: usize,
    offset: usize,
    buffer: Arc<Buffer>,
}

impl Host {
    /// Takes the numbers over; rows laid end to end.
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
            buffer: Arc::new(Buffer::from_vec(values)),
        }
    }

    /// A new matrix, all of whose numbers `fill` writes: what it finds there is arbitrary.
    pub(crate) fn build(rows: usize, columns: usize, fill: impl FnOnce(&mut [f32])) -> Self {
        let mut buffer = Buffer::with_length(rows * columns);
        fill(&mut buffer.values_mut()[..rows * columns]);
        Self { rows, columns, stride: columns, offset: 0, buffer: Arc::new(buffer) }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Whether both are the same rows and columns of the same memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer)
            && (self.rows, self.columns, self.stride, self.offset)
                == (other.rows, other.columns, other.stride, other.offset)
    }

    /// Distance between the beginnings of two rows.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// From the first number of the first row to the last of the last, with whatever lies between
    /// rows.
    pub(crate) fn span(&self) -> &[f32] {
        if self.rows == 0 || self.columns == 0 {
            return &[];
        }
        &self.buffer.values()
            [self.offset..self.offset + (self.rows - 1) * self.stride + self.columns]
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let start = self.offset + row * self.stride;
        &self.buffer.values()[start..start + self.columns]
    }

    /// Whether the rows lie end to end.
    pub(crate) fn is_dense(&self) -> bool {
        self.stride == self.columns || self.rows <= 1
    }

    /// The rows laid end to end; copied only if they are not already.
    pub fn dense(&self) -> Cow<'_, [f32]> {
        if self.is_dense() {
            return Cow::Borrowed(self.span());
        }
        Cow::Owned((0..self.rows).flat_map(|row| self.row(row).iter().copied()).collect())
    }

    /// The numbers for change in place, if nobody shares them and the rows lie end to end.
    pub(crate) fn exclusive(&mut self) -> Option<&mut [f32]> {
        if !self.is_dense() {
            return None;
        }
        let range = self.offset..self.offset + self.rows * self.columns;
        Arc::get_mut(&mut self.buffer).map(|buffer| &mut buffer.values_mut()[range])
    }

    /// The numbers for change in place; copied first if somebody shares them.
    pub fn values_mut(&mut self) -> &mut [f32] {
        if self.exclusive().is_none() {
            let copy =
                Self::build(self.rows, self.columns, |out| out.copy_from_slice(&self.dense()));
            *self = copy;
        }
        self.exclusive().expect("a fresh copy is dense and not shared")
    }

    pub(crate) fn column_range(&self, columns: Range<usize>) -> Self {
        assert!(columns.end <= self.columns, "columns {columns:?} of {}", self.columns);
        Self { columns: columns.len(), offset: self.offset + columns.start, ..self.clone() }
    }

    /// The same numbers, row after row, in rows of another length; copied if they are not dense.
    pub(crate) fn reshape(&self, [rows, columns]: [usize; 2]) -> Self {
        assert_eq!(rows * columns, self.rows * self.columns, "numbers of a matrix");
        let dense = match self.is_dense() {
            true => self.clone(),
            false => Self::build(self.rows, self.columns, |out| {
                out.copy_from_slice(&self.dense());
            }),
        };
        Self { rows, columns, stride: columns, ..dense }
    }

    pub(crate) fn row_range(&self, rows: Range<usize>) -> Self {
        assert!(rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        Self { rows: rows.len(), offset: self.offset + rows.start * self.stride, ..self.clone() }
    }
}
