//! Operands of a matrix product: slices with arbitrary strides, and how the output is updated.

use crate::Host;

/// A view of a slice as a matrix with arbitrary strides.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub values: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    pub row_stride: usize,
    pub column_stride: usize,
}

impl<'a> View<'a> {
    /// A view with row distance `stride`.
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

    /// A range of columns.
    pub fn column_range(self, columns: std::ops::Range<usize>) -> Self {
        assert!(columns.end <= self.columns, "columns {columns:?} of {}", self.columns);
        let values = &self.values[(columns.start * self.column_stride).min(self.values.len())..];
        Self { values, columns: columns.len(), ..self }
    }

    /// Checks that every element reachable by the strides lies within the slice.
    pub fn check(&self) {
        if self.rows == 0 || self.columns == 0 {
            return;
        }
        let last = (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride;
        assert!(last < self.values.len(), "a matrix view reaches beyond its numbers");
    }
}

/// How a product updates its output.
#[derive(Clone, Copy)]
pub enum Update<'a> {
    /// Replaces the output.
    Overwrite,
    /// Adds to the values already in the output.
    Add,
    /// Adds a bias: the same row for every row of the output. The result equals that of a bias
    /// already in the output, but saves writing and reading it there.
    Bias(&'a [f32]),
}

impl Update<'_> {
    /// The same update for an output without its first columns.
    pub fn after_columns(self, first: usize) -> Self {
        match self {
            Self::Bias(row) => Self::Bias(&row[first..]),
            other => other,
        }
    }

    /// Writes a bias, or zeros, to the output, and returns the update to use afterward.
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
