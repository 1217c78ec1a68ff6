//! Operands of a matrix product: slices with any strides, and what becomes of the output.

use crate::tensor::Host;

/// A view of a slice as a matrix with any strides.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub values: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    pub row_stride: usize,
    pub column_stride: usize,
}

impl<'a> View<'a> {
    /// Rows that begin `stride` apart.
    pub fn new(values: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        let view = Self { values, rows, columns, row_stride: stride, column_stride: 1 };
        view.check();
        view
    }

    pub fn of(host: &'a Host) -> Self {
        Self::new(host.span(), host.rows(), host.columns(), host.stride())
    }

    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Some of the columns.
    pub fn column_range(self, columns: std::ops::Range<usize>) -> Self {
        assert!(columns.end <= self.columns, "columns {columns:?} of {}", self.columns);
        let values = &self.values[(columns.start * self.column_stride).min(self.values.len())..];
        Self { values, columns: columns.len(), ..self }
    }

    /// Every element that the strides reach lies inside the slice.
    pub fn check(&self) {
        if self.rows == 0 || self.columns == 0 {
            return;
        }
        let last = (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride;
        assert!(last < self.values.len(), "a matrix view reaches beyond its numbers");
    }
}

/// What a product is added to.
#[derive(Clone, Copy)]
pub enum Update<'a> {
    /// Nothing.
    Overwrite,
    /// The numbers that are in the output already.
    Add,
    /// A bias: the same row for every row of the output. Its numbers are added as they would be if
    /// they were in the output already, which saves writing and reading them there.
    Bias(&'a [f32]),
}

impl Update<'_> {
    /// The same for an output without its first columns.
    pub fn after_columns(self, first: usize) -> Self {
        match self {
            Self::Bias(row) => Self::Bias(&row[first..]),
            other => other,
        }
    }

    /// Writes a bias, or zeros, to an output of so many rows and columns, to which is then added.
    pub fn prepare<'a>(
        self,
        out: &mut [f32],
        stride: usize,
        [rows, columns]: [usize; 2],
    ) -> Update<'a> {
        for out in out.chunks_mut(stride.max(1)).take(rows) {
            match self {
                Self::Add => {}
                Self::Overwrite => out[..columns].fill(0.0),
                Self::Bias(row) => out[..columns].copy_from_slice(&row[..columns]),
            }
        }
        Update::Add
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "beyond its numbers")]
    fn a_view_cannot_reach_outside() {
        View::new(&[0.0; 5], 2, 3, 3);
    }
}
