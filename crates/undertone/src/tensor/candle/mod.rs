//! The operations composed of candle's, for GPUs; on candle's CPU device they can be tried without
//! one.

mod attention;
mod cache;
mod operations;
mod unit_norms;

use super::backend::{Backend, Block, Ranges};
use super::{
    Activation, AttentionShape, Dropout, Host, Matrix, NormKind, Normalised, Operand, Result, Shape,
};
use cache::CandleCache;
use candle_core::{DType, Device, Tensor};
use operations::indices;
use std::ops::Range;

/// Candle's operations.
pub struct Candle;

/// Blocks of columns, in any order.
pub struct Draft {
    device: Device,
    shape: Shape,
    blocks: Vec<(Range<usize>, Tensor)>,
}

fn factor(operand: Operand<Tensor>) -> Result<Tensor> {
    let Operand { matrix, transposed } = operand;
    Ok(if transposed { matrix.t()?.contiguous()? } else { matrix.contiguous()? })
}

impl Draft {
    fn add(&mut self, block: &Block, tensor: Tensor) -> Result<()> {
        match self.blocks.iter_mut().find(|(columns, _)| *columns == block.columns) {
            Some((_, sum)) => *sum = (&*sum + tensor)?,
            None => self.blocks.push((block.columns.clone(), tensor)),
        }
        Ok(())
    }
}

impl Backend for Candle {
    type Matrix = Tensor;
    type Device = Device;
    type Cache = CandleCache;
    type Draft = Draft;

    fn of(matrix: &Matrix) -> Option<&Tensor> {
        match matrix {
            Matrix::Host(_) => None,
            Matrix::Candle(tensor) => Some(tensor),
        }
    }

    fn take(matrix: Matrix) -> Option<Tensor> {
        match matrix {
            Matrix::Host(_) => None,
            Matrix::Candle(tensor) => Some(tensor),
        }
    }

    fn wrap(matrix: Tensor) -> Matrix {
        Matrix::Candle(matrix)
    }

    fn shape(matrix: &Tensor) -> Shape {
        [matrix.dims()[0], matrix.dims()[1]]
    }

    fn from_host(host: &Host, device: &Device) -> Result<Tensor> {
        let values = host.dense().into_owned();
        Ok(Tensor::from_vec(values, (host.rows(), host.columns()), device)?)
    }

    fn to_host(matrix: &Tensor) -> Result<Host> {
        let [rows, columns] = Self::shape(matrix);
        // candle slices beyond the end of an empty tensor that is part of another.
        let values =
            if rows * columns == 0 { Vec::new() } else { matrix.flatten_all()?.to_vec1()? };
        Ok(Host::from_vec(rows, columns, values))
    }

    fn is_same(one: &Tensor, other: &Tensor) -> bool {
        one.id() == other.id()
    }

    fn row_range(matrix: &Tensor, rows: Range<usize>) -> Result<Tensor> {
        Ok(matrix.narrow(0, rows.start, rows.len())?)
    }

    fn column_range(matrix: &Tensor, columns: Range<usize>) -> Result<Tensor> {
        Ok(matrix.narrow(1, columns.start, columns.len())?)
    }

    fn normalise(
        kind: NormKind,
        x: &Tensor,
        residual: Option<&Tensor>,
        weight: &Tensor,
        bias: Option<&Tensor>,
        epsilon: f32,
    ) -> Result<Normalised<Tensor>> {
        Ok(operations::norm_forward(kind, x, residual, weight, bias, epsilon)?)
    }

    fn normalise_backward(
        kind: NormKind,
        normalised: &Tensor,
        inverse_std: &Tensor,
        weight: &Tensor,
        output_gradient: &Tensor,
    ) -> Result<Tensor> {
        let gradient = output_gradient;
        Ok(operations::norm_backward(kind, normalised, inverse_std, weight, gradient)?)
    }

    fn activate(kind: Activation, x: &Tensor) -> Result<Tensor> {
        Ok(operations::activation(kind, x)?)
    }

    fn activate_backward(kind: Activation, x: &Tensor, output_gradient: &Tensor) -> Result<Tensor> {
        Ok((operations::activation_derivative(kind, x)? * output_gradient)?)
    }

    fn gate(kind: Activation, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        Ok((operations::activation(kind, gate)? * up)?)
    }

    fn gate_backward(
        kind: Activation,
        gate: &Tensor,
        up: &Tensor,
        output_gradient: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let gate_gradient =
            ((operations::activation_derivative(kind, gate)? * up)? * output_gradient)?;
        let up_gradient = (operations::activation(kind, gate)? * output_gradient)?;
        Ok((gate_gradient, up_gradient))
    }

    fn attend(qkv: &Tensor, shape: &AttentionShape) -> Result<(Tensor, Tensor)> {
        let output = attention::attention(qkv, shape)?;
        Ok((output.clone(), output))
    }

    fn attend_backward(
        qkv: &Tensor,
        _: &Tensor,
        _: &Tensor,
        output_gradient: &Tensor,
        shape: &AttentionShape,
    ) -> Result<Tensor> {
        Ok(attention::attention_backward(qkv, output_gradient, shape)?)
    }

    fn new_cache(sequences: usize) -> CandleCache {
        CandleCache::new(sequences)
    }

    fn cached_sequences(cache: &CandleCache) -> usize {
        cache.sequences()
    }

    fn select(cache: &mut CandleCache, origins: &[usize]) {
        cache.select(origins);
    }

    fn attend_cached(
        cache: &mut CandleCache,
        qkv: &Tensor,
        shape: &AttentionShape,
    ) -> Result<Tensor> {
        Ok(cache.attend(qkv, shape)?)
    }

    fn rotate(
        x: Tensor,
        columns: usize,
        frequencies: &[f32],
        positions: &[u32],
        direction: f32,
    ) -> Result<Tensor> {
        Ok(operations::rotate(&x, columns, frequencies, positions, direction)?)
    }

    fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
        Ok((a + b)?)
    }

    fn scale_rows(x: &Tensor, factors: &[f32]) -> Result<Tensor> {
        let erase = factors.contains(&0.0);
        let factors = Tensor::from_slice(factors, (factors.len(), 1), x.device())?;
        let scaled = x.broadcast_mul(&factors)?;
        if !erase {
            return Ok(scaled);
        }
        let kept = factors.ne(0.0)?.broadcast_as(scaled.shape())?;
        Ok(kept.where_cond(&scaled, &scaled.zeros_like()?)?)
    }

    fn scale_columns(x: &Tensor, factors: &[f32]) -> Result<Tensor> {
        let factors = Tensor::from_slice(factors, (1, factors.len()), x.device())?;
        Ok(x.broadcast_mul(&factors)?)
    }

    fn gather(table: &Tensor, rows: &[u32]) -> Result<Tensor> {
        Ok(table.contiguous()?.index_select(&indices(rows, table)?, 0)?)
    }

    fn scatter(x: &Tensor, targets: &[u32], rows: usize) -> Result<Tensor> {
        let zeros = Tensor::zeros((rows, x.dims()[1]), DType::F32, x.device())?;
        Self::scatter_onto(zeros, x, targets)
    }

    fn scatter_onto(onto: Tensor, x: &Tensor, targets: &[u32]) -> Result<Tensor> {
        let x = x.contiguous()?;
        Ok(onto.index_add(&indices(targets, &x)?, &x, 0)?)
    }

    fn column_sums(x: &Tensor) -> Result<Tensor> {
        Ok(x.sum_keepdim(0)?)
    }

    fn column_sums_of_product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
        Ok((a * b)?.sum_keepdim(0)?)
    }

    fn cross_entropy(
        logits: &Tensor,
        targets: &[u32],
        weights: Option<&[f32]>,
    ) -> Result<(Vec<f32>, Option<Tensor>)> {
        Ok(operations::cross_entropy(logits, targets, weights)?)
    }

    fn softmax(logits: &Tensor) -> Result<Tensor> {
        Ok(operations::softmax(logits)?)
    }

    fn drop_out(dropout: Dropout, x: &Tensor) -> Result<Tensor> {
        Ok(operations::drop_out(dropout, x)?)
    }

    fn release_and_update(
        state: UpdateState<Tensor>,
        update: &ParameterUpdate,
    ) -> Result<UpdateState<Tensor>> {
        let device = state.value.device().clone();
        let UpdateState { sum, value, first, second } = state;
        let [sum, value] = [Self::to_host(&sum)?, Self::to_host(&value)?];
        let [first, second] = [Self::to_host(&first)?, Self::to_host(&second)?];
        let state = UpdateState { sum, value, first, second };
        let UpdateState { sum, value, first, second } = Cpu::release_and_update(state, update)?;
        Ok(UpdateState {
            sum: Self::from_host(&sum, &device)?,
            value: Self::from_host(&value, &device)?,
            first: Self::from_host(&first, &device)?,
            second: Self::from_host(&second, &device)?,
        })
    }

    fn draft(device: &Device, shape: Shape) -> Draft {
        Draft { device: device.clone(), shape, blocks: Vec::new() }
    }

    fn draft_onto(matrix: Tensor) -> Draft {
        let (device, shape) = (matrix.device().clone(), Self::shape(&matrix));
        Draft { device, shape, blocks: vec![(0..shape[1], matrix)] }
    }

    fn fill_rows(draft: &mut Draft, block: &Block, row: &Tensor) -> Result<()> {
        let filled = row.broadcast_as((draft.shape[0], block.columns.len()))?.contiguous()?;
        draft.add(block, filled)
    }

    fn add_matrix(draft: &mut Draft, block: &Block, matrix: &Tensor) -> Result<()> {
        draft.add(block, matrix.clone())
    }

    fn add_product(
        draft: &mut Draft,
        block: &Block,
        scale: f32,
        left: Operand<Tensor>,
        right: Operand<Tensor>,
    ) -> Result<()> {
        let mut product = factor(left)?.matmul(&factor(right)?)?;
        if scale != 1.0 {
            product = product.affine(f64::from(scale), 0.0)?;
        }
        draft.add(block, product)
    }

    fn add_weighted_product(
        draft: &mut Draft,
        block: &Block,
        left: &Tensor,
        weights: &[f32],
        right: &Tensor,
    ) -> Result<()> {
        let left = Self::scale_rows(left, weights)?;
        let left = Operand { matrix: &left, transposed: true };
        let right = Operand { matrix: right, transposed: false };
        Self::add_product(draft, block, 1.0, left, right)
    }

    fn finish(mut draft: Draft) -> Result<Tensor> {
        draft.blocks.sort_by_key(|(columns, _)| columns.start);
        let parts: Vec<&Tensor> = draft.blocks.iter().map(|(_, block)| block).collect();
        match parts[..] {
            [] => Ok(Tensor::zeros(&draft.shape, DType::F32, &draft.device)?),
            [only] => Ok(only.clone()),
            _ => Ok(Tensor::cat(&parts, 1)?),
        }
    }

    fn products(a: &Tensor, es: &[&Tensor], ranges: Ranges) -> Result<Vec<f64>> {
        let mut total = vec![0.0; ranges.len()];
        for e in es {
            let squared = unit_norms::products(a, e, ranges)?;
            total.iter_mut().zip(squared).for_each(|(total, squared)| *total += squared);
        }
        Ok(total)
    }

    fn product_under(
        a: &Tensor,
        w: &[f32],
        e: &Tensor,
        u: &[f32],
        ranges: Ranges,
    ) -> Result<Vec<f64>> {
        let roots = |weights: &[f32]| -> Vec<f32> { weights.iter().map(|w| w.sqrt()).collect() };
        let (a, e) = (Self::scale_columns(a, &roots(w))?, Self::scale_columns(e, &roots(u))?);
        Ok(unit_norms::products(&a, &e, ranges)?)
    }

    fn inner_products(
        one: (&Tensor, &Tensor, Ranges),
        other: (&Tensor, &Tensor, Ranges),
    ) -> Result<Vec<f64>> {
        Ok(unit_norms::inner_products(one, other)?)
    }

    fn row_sums(a: Option<&Tensor>, e: &Tensor, ranges: Ranges) -> Result<Tensor> {
        Ok(unit_norms::row_sums(a, e, ranges)?)
    }
}
