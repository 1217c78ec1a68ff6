//! A matrix under construction: matrix products (GEMM) are added into blocks of its columns.

use super::backend::{At, Backend, Block, on_backend};
use super::cpu::Cpu;
use super::cuda::Cuda;
use super::error::{Result, Shape, count, fits};
use super::{Device, Matrix, Panels, RowWeights};
use std::ops::Range;

/// A factor of a product, possibly transposed.
#[derive(Debug)]
pub struct Operand<'a, M = Matrix> {
    pub(crate) matrix: &'a M,
    pub(crate) transposed: bool,
}

// Not derived: a reference is `Copy` whether or not the matrix is.
impl<M> Clone for Operand<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Operand<'_, M> {}

impl Matrix {
    /// The matrix as a factor of a product.
    pub fn plain(&self) -> Operand<'_> {
        Operand { matrix: self, transposed: false }
    }

    /// The transpose as a factor of a product, without moving data.
    pub fn transposed(&self) -> Operand<'_> {
        Operand { matrix: self, transposed: true }
    }
}

impl Operand<'_> {
    /// The device that holds the matrix.
    pub fn device(self) -> crate::Device {
        self.matrix.device()
    }

    /// The same factor, transposed if `turn` is true.
    pub fn turned(self, turn: bool) -> Self {
        Self { transposed: self.transposed ^ turn, ..self }
    }

    /// Packs the factor once for many products with few rows; CPU only.
    pub fn panels(self) -> Option<Panels> {
        on_backend!("layout of weights", self.matrix, |B, at| B::panels(at.operand(self).ok()?))
    }

    fn shape(&self) -> Shape {
        let [rows, columns] = self.matrix.shape();
        if self.transposed { [columns, rows] } else { [rows, columns] }
    }
}

/// Accumulates products, biases and copies into blocks of columns. The first write to a block
/// overwrites it, later ones add to it. Two blocks are either identical or disjoint.
pub struct Output {
    shape: Shape,
    device: &'static str,
    written: Vec<Range<usize>>,
    draft: Draft,
}

enum Draft {
    Host(<Cpu as Backend>::Draft),
    Cuda(<Cuda as Backend>::Draft),
}

/// `on_draft!(output, operation, |B, at, draft| body)` evaluates `body` with `B` bound to the
/// output's backend type, `at` to an `At` that extracts operands for that backend, and `draft` to
/// the matrix under construction.
macro_rules! on_draft {
    ($output:expr, $operation:expr, |$B:ident, $at:ident, $draft:ident| $body:expr) => {
        match &mut $output.draft {
            Draft::Host($draft) => {
                type $B = Cpu;
                let $at = At::<$B>::beside($operation, $output.device, $output.shape);
                $body
            }
            Draft::Cuda($draft) => {
                type $B = Cuda;
                let $at = At::<$B>::beside($operation, $output.device, $output.shape);
                $body
            }
        }
    };
}

impl Output {
    /// An unwritten matrix of this shape.
    pub fn new(device: &Device, rows: usize, columns: usize) -> Self {
        let shape = [rows, columns];
        let draft = match device {
            Device::Cpu => Draft::Host(Cpu::draft(&(), shape)),
            Device::Cuda(device) => Draft::Cuda(Cuda::draft(device, shape)),
        };
        Self { shape, device: device.name(), written: Vec::new(), draft }
    }

    /// An unwritten sum of gradients of this shape, in f32 regardless of the precision of
    /// activations.
    pub fn sum(device: &Device, rows: usize, columns: usize) -> Self {
        let shape = [rows, columns];
        let draft = match device {
            Device::Cpu => Draft::Host(Cpu::draft_sum(&(), shape)),
            Device::Cuda(device) => Draft::Cuda(Cuda::draft_sum(device, shape)),
        };
        Self { shape, device: device.name(), written: Vec::new(), draft }
    }

    /// A finished matrix to which more is added; copied only if the data is shared.
    pub fn onto(matrix: Matrix) -> Self {
        let (shape, device) = (matrix.shape(), matrix.device().name());
        let draft = match matrix {
            Matrix::Host(host) => Draft::Host(Cpu::draft_onto(host)),
            Matrix::Cuda(matrix) => Draft::Cuda(Cuda::draft_onto(matrix)),
        };
        Self { shape, device, written: std::iter::once(0..shape[1]).collect(), draft }
    }

    /// A block of these columns, which counts as written from now on.
    ///
    /// # Panics
    /// If it overlaps another block or extends beyond the matrix.
    fn block(&mut self, columns: Range<usize>) -> Block {
        if self.written.contains(&columns) {
            return Block { columns, written: true };
        }
        let apart = |block: &Range<usize>| block.end <= columns.start || columns.end <= block.start;
        assert!(
            columns.end <= self.shape[1] && self.written.iter().all(apart),
            "blocks of columns overlap"
        );
        self.written.push(columns.clone());
        Block { columns, written: false }
    }

    /// Writes the same row, such as a bias, to every row of an unwritten block.
    ///
    /// # Panics
    /// If the block has already been written or overlaps another one.
    pub fn fill_rows(&mut self, columns: Range<usize>, row: &Matrix) -> Result<()> {
        const NAME: &str = "filling of rows";
        let rule = "the second must be one row with a number for each column of the block";
        fits(row.shape() == [1, columns.len()], NAME, self.shape, row.shape(), rule)?;
        let block = self.block(columns);
        assert!(!block.written, "a block is filled before products are added");
        on_draft!(self, NAME, |B, at, draft| B::fill_rows(draft, &block, at.get(row)?))
    }

    /// Copies a whole matrix, to which products are then added.
    ///
    /// # Panics
    /// If anything has already been written.
    pub fn copy(&mut self, from: &Matrix) -> Result<()> {
        assert!(self.written.is_empty(), "a copy comes before products");
        self.add(from)
    }

    /// Adds a whole matrix.
    pub fn add(&mut self, matrix: &Matrix) -> Result<()> {
        const NAME: &str = "sum";
        let rule = "both must have the same shape";
        fits(matrix.shape() == self.shape, NAME, self.shape, matrix.shape(), rule)?;
        let block = self.block(0..self.shape[1]);
        on_draft!(self, NAME, |B, at, draft| B::add_matrix(draft, &block, at.get(matrix)?))
    }

    /// Writes a matrix into a block, or adds it if the block has already been written.
    pub fn add_block(&mut self, columns: Range<usize>, matrix: &Matrix) -> Result<()> {
        const NAME: &str = "sum";
        let rule = "the second must be as large as the block";
        let wanted = [self.shape[0], columns.len()];
        fits(matrix.shape() == wanted, NAME, self.shape, matrix.shape(), rule)?;
        let block = self.block(columns);
        on_draft!(self, NAME, |B, at, draft| B::add_matrix(draft, &block, at.get(matrix)?))
    }

    /// Adds `scale · left · right` to a block.
    ///
    /// # Panics
    /// If the block overlaps another one.
    pub fn add_product(
        &mut self,
        columns: Range<usize>,
        scale: f32,
        left: Operand,
        right: Operand,
    ) -> Result<()> {
        const NAME: &str = "matrix product";
        self.check_product(&columns, left.shape(), right.shape())?;
        let block = self.block(columns);
        on_draft!(self, NAME, |B, at, draft| {
            B::add_product(draft, &block, scale, at.operand(left)?, at.operand(right)?)
        })
    }

    /// Checks that the inner dimensions match and that the product has the shape of its block.
    fn check_product(&self, columns: &Range<usize>, left: Shape, right: Shape) -> Result<()> {
        const NAME: &str = "matrix product";
        fits(left[1] == right[0], NAME, left, right, "the inner sizes must be equal")?;
        let (block, shape) = ([self.shape[0], columns.len()], [left[0], right[1]]);
        fits(block == shape, NAME, left, right, "the product must be as large as its block")
    }

    /// Adds to all columns the sum over rows t of weight_t · left_t ⊗ right_t. A row of weight 0
    /// contributes nothing, whatever it contains.
    pub fn add_weighted_product(
        &mut self,
        left: &Matrix,
        weights: &RowWeights,
        right: &Matrix,
    ) -> Result<()> {
        const NAME: &str = "weighted matrix product";
        let columns = 0..self.shape[1];
        self.check_product(&columns, left.transposed().shape(), right.shape())?;
        count(NAME, left.shape(), "weights", weights.values().len(), left.rows())?;
        let block = self.block(columns);
        on_draft!(self, NAME, |B, at, draft| {
            B::add_weighted_product(draft, &block, at.get(left)?, weights, at.get(right)?)
        })
    }

    /// Adds `left` times packed weights and returns whether it did: it does not if `left` has many
    /// rows or if the device is not the CPU.
    ///
    /// # Panics
    /// If the block overlaps another one.
    pub fn add_panels(&mut self, columns: Range<usize>, left: &Matrix, right: &Panels) -> bool {
        if self.check_product(&columns, left.shape(), right.shape()).is_err() {
            return false;
        }
        on_draft!(self, "matrix product", |B, _at, _draft| {
            if !B::uses_panels(left.rows()) || B::of(left).is_none() {
                return false;
            }
        });
        let block = self.block(columns);
        on_draft!(self, "matrix product", |B, at, draft| {
            at.get(left).is_ok_and(|left| B::add_panels(draft, &block, left, right))
        })
    }

    /// The finished matrix.
    ///
    /// # Panics
    /// If a column has not been written.
    pub fn finish(self) -> Result<Matrix> {
        let covered: usize = self.written.iter().map(ExactSizeIterator::len).sum();
        assert_eq!(covered, self.shape[1], "every column of an output is written");
        match self.draft {
            Draft::Host(draft) => Ok(Cpu::wrap(Cpu::finish(draft)?)),
            Draft::Cuda(draft) => Ok(Cuda::wrap(Cuda::finish(draft)?)),
        }
    }
}

/// `scale · left · right` as a new matrix.
pub fn product(scale: f32, left: Operand, right: Operand) -> Result<Matrix> {
    let (rows, columns) = (left.shape()[0], right.shape()[1]);
    let mut output = Output::new(&left.matrix.device(), rows, columns);
    output.add_product(0..columns, scale, left, right)?;
    output.finish()
}
