//! The backend operations on matrices of a GPU; each calls one of the kernels beside this file or a
//! cuBLAS product.

use super::cache::CudaCache;
use super::device::CudaDevice;
use super::format::NumberFormat;
use super::fused::Addend;
use super::gradient_means as means;
use super::matrix::CudaMatrix;
use super::products::{multiply, multiply_onto};
use super::unit_norms::{CudaPerUnit, Onto};
use super::{activation, attention, likely, loss, norm, rotary, rows, unit_norms};
use crate::backend::{Backend, Block, Ranges};
use crate::unit_norms::SquareWeights;
use crate::{
    Activation, AttentionShape, CoordinateWeights, Dropout, GradientMeans, GradientStatistic, Host,
    Likely, Matrix, NoisyGradient, NormKind, Normalized, Operand, ParameterUpdate, Relative,
    RelativeGradients, Result, RowWeights, Shape, UpdateState,
};
use std::ops::Range;

/// Our own kernels and cuBLAS, on one GPU.
pub struct Cuda;

/// A matrix under construction; its memory is allocated on the first write.
pub struct Draft {
    device: CudaDevice,
    format: NumberFormat,
    shape: Shape,
    matrix: Option<CudaMatrix>,
    /// Whether this draft is the matrix's only owner.
    is_own: bool,
    /// Initial values of column blocks that are not written yet: the first product adds them.
    pending: Vec<(Range<usize>, Pending)>,
}

/// The initial value of a block.
enum Pending {
    /// The same row in every row.
    Row(CudaMatrix),
    Matrix(CudaMatrix),
}

impl Draft {
    /// The matrix, dense and exclusively owned.
    fn matrix(&mut self) -> Result<&CudaMatrix> {
        let [rows, columns] = self.shape;
        let matrix = match self.matrix.take() {
            None => CudaMatrix::new_padded(self.device, self.format, rows, columns)?,
            Some(matrix) if self.is_own => matrix,
            Some(matrix) => matrix.exclusive()?,
        };
        self.is_own = true;
        Ok(self.matrix.insert(matrix))
    }

    /// A view of a block of its columns.
    fn block(&mut self, columns: &Range<usize>) -> Result<CudaMatrix> {
        Ok(self.matrix()?.column_range(columns.clone()))
    }

    /// Takes the initial value of a block, if it is not written yet.
    fn take_pending(&mut self, columns: &Range<usize>) -> Option<Pending> {
        let place = self.pending.iter().position(|(pending, _)| pending == columns)?;
        Some(self.pending.swap_remove(place).1)
    }

    /// Writes the initial value of a block.
    fn write(&mut self, columns: &Range<usize>, pending: &Pending) -> Result<()> {
        let target = self.block(columns)?;
        // SAFETY: the draft owns its data exclusively; a row has one value per column, and a matrix
        // has the block's shape.
        unsafe {
            match pending {
                Pending::Row(row) => target.fill_rows(row),
                Pending::Matrix(matrix) => target.update(matrix, false),
            }
        }
    }
}

impl Backend for Cuda {
    type Matrix = CudaMatrix;
    type Device = CudaDevice;
    type Cache = CudaCache;
    type Draft = Draft;
    type PerUnit = CudaPerUnit;

    fn of(matrix: &Matrix) -> Option<&CudaMatrix> {
        match matrix {
            Matrix::Cuda(matrix) => Some(matrix),
            Matrix::Host(_) => None,
        }
    }

    fn take(matrix: Matrix) -> Option<CudaMatrix> {
        match matrix {
            Matrix::Cuda(matrix) => Some(matrix),
            Matrix::Host(_) => None,
        }
    }

    fn wrap(matrix: CudaMatrix) -> Matrix {
        Matrix::Cuda(matrix)
    }

    fn shape(matrix: &CudaMatrix) -> Shape {
        [matrix.rows(), matrix.columns()]
    }

    fn from_host(host: &Host, device: &CudaDevice) -> Result<CudaMatrix> {
        CudaMatrix::from_host(*device, host)
    }

    fn to_host(matrix: &CudaMatrix) -> Result<Host> {
        matrix.to_host()
    }

    fn is_same(left: &CudaMatrix, right: &CudaMatrix) -> bool {
        left.is_same(right)
    }

    fn row_range(matrix: &CudaMatrix, rows: Range<usize>) -> Result<CudaMatrix> {
        Ok(matrix.row_range(rows))
    }

    fn column_range(matrix: &CudaMatrix, columns: Range<usize>) -> Result<CudaMatrix> {
        Ok(matrix.column_range(columns))
    }

    fn reshape(matrix: &CudaMatrix, shape: Shape) -> Result<CudaMatrix> {
        matrix.reshape(shape)
    }

    fn normalize(
        kind: NormKind,
        x: &CudaMatrix,
        residual: Option<&CudaMatrix>,
        weight: &CudaMatrix,
        bias: Option<&CudaMatrix>,
        epsilon: f32,
    ) -> Result<Normalized<CudaMatrix>> {
        norm::forward(kind, x, residual, weight, bias, epsilon)
    }

    fn normalize_backward(
        kind: NormKind,
        normalized: &CudaMatrix,
        inverse_std: &CudaMatrix,
        weight: &CudaMatrix,
        output_gradient: &CudaMatrix,
    ) -> Result<CudaMatrix> {
        norm::backward(kind, normalized, inverse_std, weight, output_gradient)
    }

    fn activate(kind: Activation, x: &CudaMatrix) -> Result<CudaMatrix> {
        activation::forward(kind, x)
    }

    fn activate_backward(
        kind: Activation,
        x: &CudaMatrix,
        output_gradient: &CudaMatrix,
    ) -> Result<CudaMatrix> {
        activation::backward(kind, x, output_gradient)
    }

    fn soft_cap(x: &CudaMatrix, cap: f32) -> Result<CudaMatrix> {
        activation::soft_cap(x, cap)
    }

    fn soft_cap_backward(
        capped: &CudaMatrix,
        output_gradient: &CudaMatrix,
        cap: f32,
    ) -> Result<CudaMatrix> {
        activation::soft_cap_backward(capped, output_gradient, cap)
    }

    fn gate(kind: Activation, gate: &CudaMatrix, up: &CudaMatrix) -> Result<CudaMatrix> {
        activation::gated_forward(kind, gate, up)
    }

    fn gate_backward(
        kind: Activation,
        gate: &CudaMatrix,
        up: &CudaMatrix,
        output_gradient: &CudaMatrix,
    ) -> Result<(CudaMatrix, CudaMatrix)> {
        activation::gated_backward(kind, gate, up, output_gradient)
    }

    fn attend(qkv: &CudaMatrix, shape: &AttentionShape) -> Result<(CudaMatrix, CudaMatrix)> {
        attention::forward(qkv, None, shape)
    }

    fn attend_backward(
        qkv: &CudaMatrix,
        output: &CudaMatrix,
        log_sums: &CudaMatrix,
        output_gradient: &CudaMatrix,
        shape: &AttentionShape,
    ) -> Result<CudaMatrix> {
        let saved = (output, log_sums);
        Ok(attention::backward(qkv, None, saved, output_gradient, shape)?.qkv)
    }

    fn attend_relative(
        qkv: &CudaMatrix,
        relative: &Relative<CudaMatrix>,
        shape: &AttentionShape,
    ) -> Result<(CudaMatrix, CudaMatrix)> {
        attention::forward(qkv, Some(relative), shape)
    }

    fn attend_relative_backward(
        qkv: &CudaMatrix,
        relative: &Relative<CudaMatrix>,
        output: &CudaMatrix,
        log_sums: &CudaMatrix,
        output_gradient: &CudaMatrix,
        shape: &AttentionShape,
    ) -> Result<RelativeGradients<CudaMatrix>> {
        let saved = (output, log_sums);
        attention::backward(qkv, Some(relative), saved, output_gradient, shape)
    }

    fn new_cache(sequences: usize) -> CudaCache {
        CudaCache::new(sequences)
    }

    fn cached_sequences(cache: &CudaCache) -> usize {
        cache.sequences()
    }

    fn add_sequences(cache: &mut CudaCache, count: usize) {
        cache.add(count);
    }

    fn select(cache: &mut CudaCache, origins: &[usize]) {
        cache.select(origins);
    }

    fn attend_cached(
        cache: &mut CudaCache,
        qkv: &CudaMatrix,
        shape: &AttentionShape,
    ) -> Result<CudaMatrix> {
        cache.attend(qkv, shape)
    }

    fn rotate(
        x: CudaMatrix,
        columns: usize,
        frequencies: &[f32],
        positions: &[u32],
        direction: f32,
    ) -> Result<CudaMatrix> {
        rotary::turn(x, columns, frequencies, positions, direction)
    }

    fn add(a: &CudaMatrix, b: &CudaMatrix) -> Result<CudaMatrix> {
        rows::add(a, b)
    }

    fn scale_rows(x: &CudaMatrix, factors: &[f32]) -> Result<CudaMatrix> {
        rows::scale_rows(x, factors)
    }

    fn lerp(average: CudaMatrix, x: &CudaMatrix, weight: f32) -> Result<CudaMatrix> {
        rows::lerp(average, x, weight)
    }

    fn scale_columns(x: &CudaMatrix, factors: &[f32]) -> Result<CudaMatrix> {
        rows::scale_columns(x, factors)
    }

    fn weigh_rows(
        x: &CudaMatrix,
        indices: Option<&[u32]>,
        weights: &CoordinateWeights,
    ) -> Result<CudaMatrix> {
        rows::weigh_rows(x, indices, weights)
    }

    fn gather(table: &CudaMatrix, indices: &[u32]) -> Result<CudaMatrix> {
        rows::gather(table, indices)
    }

    fn scatter(x: &CudaMatrix, indices: &[u32], rows: usize) -> Result<CudaMatrix> {
        rows::scatter(x, indices, rows)
    }

    fn scatter_onto(onto: CudaMatrix, x: &CudaMatrix, indices: &[u32]) -> Result<CudaMatrix> {
        rows::scatter_onto(onto, x, indices)
    }

    fn column_sums(x: &CudaMatrix) -> Result<CudaMatrix> {
        rows::column_sums(x, None, None)
    }

    fn weighted_column_sums(x: &CudaMatrix, factors: &[f32]) -> Result<CudaMatrix> {
        rows::column_sums(x, None, Some(factors))
    }

    fn vector_sums(xs: &[&CudaMatrix], factors: &[f32]) -> Result<Vec<CudaMatrix>> {
        unit_norms::vector_sums(xs, factors)
    }

    fn column_sums_of_product(a: &CudaMatrix, b: &CudaMatrix) -> Result<CudaMatrix> {
        rows::column_sums(a, Some(b), None)
    }

    fn cross_entropy(
        logits: &CudaMatrix,
        targets: &[u32],
        weights: Option<&[f32]>,
    ) -> Result<(CudaMatrix, Option<CudaMatrix>)> {
        loss::cross_entropy(logits, targets, weights)
    }

    fn likely(logits: &CudaMatrix, temperature: f32, below: f32) -> Result<Vec<Likely>> {
        likely::likely(logits, temperature, below)
    }

    fn sample(logits: &CudaMatrix, temperature: f32, uniforms: &[f64]) -> Result<Vec<u32>> {
        likely::sample(logits, temperature, uniforms)
    }

    fn softmax(logits: &CudaMatrix) -> Result<CudaMatrix> {
        loss::softmax(logits)
    }

    fn drop_out(dropout: Dropout, x: &CudaMatrix) -> Result<CudaMatrix> {
        rows::drop_out(dropout, x)
    }

    fn release_and_update(
        states: Vec<UpdateState<CudaMatrix>>,
        updates: &[ParameterUpdate],
    ) -> Result<Vec<UpdateState<CudaMatrix>>> {
        super::update::release_and_update(states, updates)
    }

    fn gradient_means(
        statistic: GradientStatistic,
        gradients: &[NoisyGradient<CudaMatrix>],
    ) -> Result<Vec<GradientMeans>> {
        means::gradient_means(statistic, gradients)
    }

    fn draft(device: &CudaDevice, shape: Shape) -> Draft {
        let format = NumberFormat::of_activations(device.precision());
        Draft { device: *device, format, shape, matrix: None, is_own: false, pending: Vec::new() }
    }

    fn draft_sum(device: &CudaDevice, shape: Shape) -> Draft {
        let format = NumberFormat::F32;
        Draft { device: *device, format, shape, matrix: None, is_own: false, pending: Vec::new() }
    }

    fn draft_onto(matrix: CudaMatrix) -> Draft {
        let (device, format) = (matrix.device(), matrix.format());
        let shape = Self::shape(&matrix);
        Draft { device, format, shape, matrix: Some(matrix), is_own: false, pending: Vec::new() }
    }

    fn fill_rows(draft: &mut Draft, block: &Block, row: &CudaMatrix) -> Result<()> {
        draft.pending.push((block.columns.clone(), Pending::Row(row.clone())));
        Ok(())
    }

    fn add_matrix(draft: &mut Draft, block: &Block, matrix: &CudaMatrix) -> Result<()> {
        if !block.written {
            draft.pending.push((block.columns.clone(), Pending::Matrix(matrix.clone())));
            return Ok(());
        }
        if let Some(pending) = draft.take_pending(&block.columns) {
            draft.write(&block.columns, &pending)?;
        }
        let target = draft.block(&block.columns)?;
        // SAFETY: the draft owns its data exclusively.
        unsafe { target.update(matrix, true) }
    }

    fn add_product(
        draft: &mut Draft,
        block: &Block,
        scale: f32,
        left: Operand<CudaMatrix>,
        right: Operand<CudaMatrix>,
    ) -> Result<()> {
        let pending = draft.take_pending(&block.columns);
        let target = draft.block(&block.columns)?;
        let addend = match &pending {
            Some(Pending::Row(row)) => Addend::Row(row),
            Some(Pending::Matrix(matrix)) => Addend::Matrix(matrix),
            // SAFETY: the shapes have been checked, and the draft owns its data exclusively.
            None => return unsafe { multiply(&target, block.written, scale, left, right) },
        };
        // SAFETY: as above.
        unsafe { multiply_onto(&target, &addend, scale, left, right) }
    }

    fn add_weighted_product(
        draft: &mut Draft,
        block: &Block,
        left: &CudaMatrix,
        weights: &RowWeights,
        right: &CudaMatrix,
    ) -> Result<()> {
        // Round both sides first, as the norms do, and scale only then: the narrower side, because
        // that is cheaper, or otherwise the right side, which is usually an input that several
        // layers share.
        let (left, right) = (left.as_factor()?, right.as_factor()?);
        let kept = weights.kept();
        let masked = |matrix: CudaMatrix| match &kept {
            Some(kept) => rows::scale_rows(&matrix, kept),
            None => Ok(matrix),
        };
        let scaled = |matrix: CudaMatrix| -> Result<CudaMatrix> {
            let scale = |matrix: &Matrix| match matrix {
                Matrix::Cuda(matrix) => {
                    Ok(Matrix::Cuda(rows::scale_rows(matrix, weights.values())?))
                }
                Matrix::Host(_) => unreachable!("rows on the GPU"),
            };
            match weights.weighted(Matrix::Cuda(matrix), scale)? {
                Matrix::Cuda(matrix) => Ok(matrix),
                Matrix::Host(_) => unreachable!("rows on the GPU"),
            }
        };
        let (left, right) = if left.columns() < right.columns() {
            (scaled(left)?, masked(right)?)
        } else {
            (masked(left)?, scaled(right)?)
        };
        let left = Operand { matrix: &left, transposed: true };
        Self::add_product(draft, block, 1.0, left, Operand { matrix: &right, transposed: false })
    }

    fn finish(mut draft: Draft) -> Result<CudaMatrix> {
        for (columns, pending) in std::mem::take(&mut draft.pending) {
            draft.write(&columns, &pending)?;
        }
        match draft.matrix.take() {
            Some(matrix) => Ok(matrix),
            // A matrix without rows or columns was never written.
            None => {
                let [rows, columns] = draft.shape;
                CudaMatrix::zeros(draft.device, draft.format, rows, columns)
            }
        }
    }

    fn per_unit(beside: &CudaMatrix, units: usize) -> Result<CudaPerUnit> {
        CudaPerUnit::zeros(beside.device(), units)
    }

    fn compute_per_unit(values: &mut CudaPerUnit) -> Result<()> {
        values.compute()
    }

    fn computed_per_unit(values: &mut CudaPerUnit) -> Result<Vec<f64>> {
        values.computed()
    }

    fn products(
        (sums, times): (&mut CudaPerUnit, f64),
        a: &CudaMatrix,
        es: &[&CudaMatrix],
        ranges: Ranges,
    ) -> Result<()> {
        unit_norms::products(Onto { sums, times }, a, es, ranges)
    }

    fn product_under(
        (sums, times): (&mut CudaPerUnit, f64),
        a: (&CudaMatrix, &[f32]),
        e: (&CudaMatrix, &[f32]),
        ranges: Ranges,
    ) -> Result<()> {
        unit_norms::product_under(Onto { sums, times }, a, e, ranges)
    }

    fn inner_products(
        (sums, times): (&mut CudaPerUnit, f64),
        left: (&CudaMatrix, &CudaMatrix, Ranges),
        right: (&CudaMatrix, &CudaMatrix, Ranges),
    ) -> Result<()> {
        unit_norms::inner_products(Onto { sums, times }, left, right)
    }

    fn table(
        (sums, times): (&mut CudaPerUnit, f64),
        indices: &[u32],
        e: &CudaMatrix,
        ranges: Ranges,
    ) -> Result<()> {
        unit_norms::table(Onto { sums, times }, indices, e, ranges)
    }

    fn table_with_product(
        (sums, times): (&mut CudaPerUnit, f64),
        table: (&[u32], &CudaMatrix, Ranges),
        product: (&CudaMatrix, &CudaMatrix, Ranges),
    ) -> Result<()> {
        unit_norms::table_with_product(Onto { sums, times }, table, product)
    }

    fn table_with_table(
        (sums, times): (&mut CudaPerUnit, f64),
        left: (&[u32], &CudaMatrix, Ranges),
        right: (&[u32], &CudaMatrix, Ranges),
    ) -> Result<()> {
        unit_norms::table_with_table(Onto { sums, times }, left, right)
    }

    fn weighted_products(
        onto: &mut [(&mut CudaPerUnit, f64)],
        factors: (&CudaMatrix, &CudaMatrix),
        ranges: Ranges,
        weights: &[&CoordinateWeights],
    ) -> Result<()> {
        unit_norms::weighted_products(onto, factors, ranges, weights)
    }

    fn weighted_table(
        (sums, times): (&mut CudaPerUnit, f64),
        indices: &[u32],
        e: &CudaMatrix,
        ranges: Ranges,
        weights: &CoordinateWeights,
    ) -> Result<()> {
        unit_norms::weighted_table(Onto { sums, times }, indices, e, ranges, weights)
    }

    fn squared_rows(
        (sums, times): (&mut CudaPerUnit, f64),
        rows: &CudaMatrix,
        weights: SquareWeights,
    ) -> Result<()> {
        unit_norms::squared_rows(Onto { sums, times }, rows, weights)
    }

    fn unit_gradients(left: &CudaMatrix, right: &CudaMatrix, ranges: Ranges) -> Result<CudaMatrix> {
        unit_norms::gradients(left, right, ranges)
    }

    fn row_sums(
        pairs: &[(Option<&CudaMatrix>, &CudaMatrix)],
        ranges: Ranges,
    ) -> Result<Vec<CudaMatrix>> {
        unit_norms::row_sums(pairs, ranges)
    }
}
