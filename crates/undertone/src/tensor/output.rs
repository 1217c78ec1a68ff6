//! A matrix under construction: products are added into blocks of its columns.

use super::cpu::matmul::{Update, View, multiply, multiply_weighted};
use super::cpu::panels::{self, Panels};
use super::cpu::parallel;
use super::{Host, Matrix, Place, Result};
use candle_core::Tensor;
use std::ops::Range;

/// A factor of a product, possibly turned.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    matrix: &'a Matrix,
    transposed: bool,
}

impl Matrix {
    /// As a factor of a product.
    pub fn plain(&self) -> Operand<'_> {
        Operand { matrix: self, transposed: false }
    }

    /// Its transpose as a factor of a product; nothing is moved.
    pub fn transposed(&self) -> Operand<'_> {
        Operand { matrix: self, transposed: true }
    }
}

impl<'a> Operand<'a> {
    /// The same factor turned, if `turn`.
    pub fn turned(self, turn: bool) -> Self {
        Self { transposed: self.transposed ^ turn, ..self }
    }

    /// Laid out once for many products with few rows; not on a device.
    pub fn panels(self) -> Option<Panels> {
        matches!(self.matrix, Matrix::Host(_)).then(|| Panels::of(self.view()))
    }

    fn view(self) -> View<'a> {
        let Matrix::Host(host) = self.matrix else {
            panic!("a product needs both factors at one place")
        };
        if self.transposed { View::of(host).transposed() } else { View::of(host) }
    }

    fn tensor(self) -> Result<Tensor> {
        let Matrix::Device(tensor) = self.matrix else {
            panic!("a product needs both factors at one place")
        };
        if self.transposed { tensor.t() } else { Ok(tensor.clone()) }
    }
}

/// Collects products, biases and copies into blocks of columns; the first writing of a block
/// overwrites, later ones add. Two blocks are the same or have no column in common.
pub struct Output {
    rows: usize,
    columns: usize,
    written: Vec<Range<usize>>,
    store: Store,
}

enum Store {
    Host(Host),
    Device(candle_core::Device, Vec<Tensor>),
}

impl Output {
    /// A matrix of this size, nothing of which is written yet.
    pub fn new(place: &Place, rows: usize, columns: usize) -> Self {
        let store = match place {
            Place::Host => Store::Host(Host::build(rows, columns, |_| {})),
            Place::Device(device) => Store::Device(device.clone(), Vec::new()),
        };
        Self { rows, columns, written: Vec::new(), store }
    }

    /// A finished matrix to which more is added; its numbers are copied only if somebody shares
    /// them.
    pub fn onto(matrix: Matrix) -> Self {
        let (rows, columns) = (matrix.rows(), matrix.columns());
        let store = match matrix {
            Matrix::Host(host) => Store::Host(host),
            Matrix::Device(tensor) => Store::Device(tensor.device().clone(), vec![tensor]),
        };
        Self { rows, columns, written: std::iter::once(0..columns).collect(), store }
    }

    /// Which block this is, and whether something was written to it.
    fn block(&mut self, columns: &Range<usize>) -> (usize, bool) {
        if let Some(found) = self.written.iter().position(|block| block == columns) {
            return (found, true);
        }
        let apart = |block: &Range<usize>| block.end <= columns.start || columns.end <= block.start;
        assert!(
            columns.end <= self.columns && self.written.iter().all(apart),
            "blocks of columns overlap"
        );
        self.written.push(columns.clone());
        (self.written.len() - 1, false)
    }

    /// Writes the same row, such as a bias, to every row of an unwritten block.
    pub fn fill_rows(&mut self, columns: Range<usize>, row: &Matrix) -> Result<()> {
        let (_, was_written) = self.block(&columns);
        assert!(!was_written, "a block is filled before products are added");
        let (rows, stride) = (self.rows, self.columns);
        match &mut self.store {
            Store::Host(host) => {
                let Matrix::Host(row) = row else { panic!("a bias lives where the product is") };
                let row = row.dense();
                parallel::rows(
                    host.values_mut(),
                    stride,
                    #[inline(always)]
                    |_, out| {
                        for out in out.chunks_exact_mut(stride) {
                            out[columns.clone()].copy_from_slice(&row);
                        }
                    },
                );
            }
            Store::Device(_, blocks) => {
                let Matrix::Device(row) = row else { panic!("a bias lives where the product is") };
                blocks.push(row.broadcast_as((rows, columns.len()))?.contiguous()?);
            }
        }
        Ok(())
    }

    /// Writes a whole matrix, to which products are then added.
    pub fn copy(&mut self, from: &Matrix) -> Result<()> {
        let (_, was_written) = self.block(&(0..self.columns));
        assert!(!was_written, "a copy comes before products");
        match (&mut self.store, from) {
            (Store::Host(host), Matrix::Host(from)) => {
                let stride = from.columns();
                parallel::rows(
                    host.values_mut(),
                    stride,
                    #[inline(always)]
                    |first, out| {
                        for (i, out) in out.chunks_exact_mut(stride).enumerate() {
                            out.copy_from_slice(from.row(first + i));
                        }
                    },
                );
            }
            (Store::Device(_, blocks), Matrix::Device(from)) => blocks.push(from.clone()),
            _ => panic!("a copy stays at its place"),
        }
        Ok(())
    }

    /// Adds a whole matrix.
    pub fn add(&mut self, matrix: &Matrix) -> Result<()> {
        let (block, was_written) = self.block(&(0..self.columns));
        if !was_written {
            self.written.pop();
            return self.copy(matrix);
        }
        match (&mut self.store, matrix) {
            (Store::Host(host), Matrix::Host(matrix)) => {
                let stride = matrix.columns();
                parallel::rows(
                    host.values_mut(),
                    stride,
                    #[inline(always)]
                    |first, out| {
                        for (i, out) in out.chunks_exact_mut(stride).enumerate() {
                            out.iter_mut().zip(matrix.row(first + i)).for_each(|(y, x)| *y += x);
                        }
                    },
                );
            }
            (Store::Device(_, blocks), Matrix::Device(matrix)) => {
                blocks[block] = (&blocks[block] + matrix)?
            }
            _ => panic!("a sum stays at its place"),
        }
        Ok(())
    }

    /// Adds `scale · left · right` to a block.
    pub fn add_product(
        &mut self,
        columns: Range<usize>,
        scale: f32,
        left: Operand,
        right: Operand,
    ) -> Result<()> {
        let (block, was_written) = self.block(&columns);
        let stride = self.columns;
        match &mut self.store {
            Store::Host(host) => {
                let how = if was_written { Update::Add } else { Update::Overwrite };
                if !host.values_mut().is_empty() {
                    let out = &mut host.values_mut()[columns.start..];
                    multiply(out, stride, how, scale, left.view(), right.view(), true);
                }
            }
            Store::Device(_, blocks) => {
                let mut product =
                    left.tensor()?.contiguous()?.matmul(&right.tensor()?.contiguous()?)?;
                if scale != 1.0 {
                    product = product.affine(f64::from(scale), 0.0)?;
                }
                if was_written {
                    blocks[block] = (&blocks[block] + product)?;
                } else {
                    blocks.push(product);
                }
            }
        }
        Ok(())
    }

    /// Adds to all columns the sum over rows t of weight_t · left_t ⊗ right_t. A row of weight 0
    /// adds nothing, whatever it holds.
    pub fn add_weighted_product(
        &mut self,
        left: &Matrix,
        weights: &[f32],
        right: &Matrix,
    ) -> Result<()> {
        if weights.contains(&0.0) {
            // Both sides lose the row: zero times infinity is not zero.
            let kept: Vec<f32> = weights.iter().map(|&weight| f32::from(weight != 0.0)).collect();
            let (left, right) =
                (super::scale_rows(left, weights)?, super::scale_rows(right, &kept)?);
            return self.add_product(0..self.columns, 1.0, left.transposed(), right.plain());
        }
        if let (Matrix::Host(left), Matrix::Host(right)) = (left, right) {
            let (_, was_written) = self.block(&(0..self.columns));
            let how = if was_written { Update::Add } else { Update::Overwrite };
            let stride = self.columns;
            let Store::Host(host) = &mut self.store else {
                panic!("a product stays at the place of its factors")
            };
            if !host.values_mut().is_empty() {
                multiply_weighted(host.values_mut(), stride, how, left, weights, right);
            }
            return Ok(());
        }
        let left = super::scale_rows(left, weights)?;
        self.add_product(0..self.columns, 1.0, left.transposed(), right.plain())
    }

    /// Adds `left` times weights that were laid out for few rows. Whether it did: not with many
    /// rows, nor on a device.
    pub fn add_panels(&mut self, columns: Range<usize>, left: &Matrix, right: &Panels) -> bool {
        let Matrix::Host(left) = left else { return false };
        if left.rows() > panels::MOST_ROWS {
            return false;
        }
        let (_, was_written) = self.block(&columns);
        let how = if was_written { Update::Add } else { Update::Overwrite };
        let stride = self.columns;
        let Store::Host(host) = &mut self.store else {
            panic!("a product stays at the place of its factors")
        };
        if let Some(out) = host.values_mut().get_mut(columns.start..) {
            right.multiply(out, stride, how, View::of(left));
        }
        true
    }

    /// The finished matrix.
    ///
    /// # Panics
    /// If a column was never written.
    pub fn finish(self) -> Result<Matrix> {
        let covered: usize = self.written.iter().map(ExactSizeIterator::len).sum();
        assert_eq!(covered, self.columns, "every column of an output is written");
        match self.store {
            Store::Host(host) => Ok(Matrix::Host(host)),
            Store::Device(device, blocks) => {
                let mut parts: Vec<_> =
                    self.written.iter().map(|block| block.start).zip(&blocks).collect();
                parts.sort_by_key(|part| part.0);
                let parts: Vec<&Tensor> = parts.into_iter().map(|part| part.1).collect();
                match parts[..] {
                    [] => Ok(Matrix::Device(Tensor::zeros(
                        (self.rows, self.columns),
                        candle_core::DType::F32,
                        &device,
                    )?)),
                    [only] => Ok(Matrix::Device(only.clone())),
                    _ => Ok(Matrix::Device(Tensor::cat(&parts, 1)?)),
                }
            }
        }
    }
}

/// `scale · left · right` as a new matrix.
pub fn product(scale: f32, left: Operand, right: Operand) -> Result<Matrix> {
    let size = |operand: &Operand| {
        let (rows, columns) = (operand.matrix.rows(), operand.matrix.columns());
        if operand.transposed { (columns, rows) } else { (rows, columns) }
    };
    let (rows, columns) = (size(&left).0, size(&right).1);
    let mut output = Output::new(&left.matrix.place(), rows, columns);
    output.add_product(0..columns, scale, left, right)?;
    output.finish()
}
