//! The backend operations on matrices in main memory; each calls one of the kernels beside this
//! file.

use super::cache::HostCache;
use super::compact_product::multiply_compact;
use super::draft::Draft;
use super::gradient_means as means;
use super::matmul::{multiply, multiply_weighted};
use super::panels::{self, Panels};
use super::view::{Update, View};
use super::{
    activation, attention, dropout, likely, loss, norm, parallel, rotary, rows, scored_attention,
    soft_cap, unit_norms, update as updates,
};
use crate::backend::{Backend, Block, Ranges};
use crate::unit_norms::SquareWeights;
use crate::{
    Activation, AttentionShape, CoordinateWeights, Dropout, GradientMeans, GradientStatistic, Host,
    Likely, Matrix, NoisyGradient, NormKind, Normalized, Operand, ParameterUpdate, Relative,
    RelativeGradients, Result, RowWeights, Shape, UpdateState,
};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// Our own kernels, on all cores.
pub struct Cpu;

impl Block {
    fn update<'a>(&self) -> Update<'a> {
        if self.written { Update::Add } else { Update::Overwrite }
    }
}

fn view<'a>(operand: Operand<'a, Host>) -> View<'a> {
    let view = View::of(operand.matrix);
    if operand.transposed { view.transposed() } else { view }
}

/// γ of a normalization.
fn scale(kind: NormKind, weight: &Host) -> Cow<'_, [f32]> {
    match kind.offset() {
        0.0 => weight.dense(),
        offset => weight.dense().iter().map(|w| w + offset).collect(),
    }
}

impl Backend for Cpu {
    type Matrix = Host;
    type Device = ();
    type Cache = HostCache;
    type Draft = Draft;
    type PerUnit = Vec<f64>;

    fn of(matrix: &Matrix) -> Option<&Host> {
        match matrix {
            Matrix::Host(host) => Some(host),
            Matrix::Cuda(_) => None,
        }
    }

    fn take(matrix: Matrix) -> Option<Host> {
        match matrix {
            Matrix::Host(host) => Some(host),
            Matrix::Cuda(_) => None,
        }
    }

    fn wrap(matrix: Host) -> Matrix {
        Matrix::Host(matrix)
    }

    fn shape(matrix: &Host) -> Shape {
        [matrix.rows(), matrix.columns()]
    }

    fn from_host(host: &Host, (): &()) -> Result<Host> {
        Ok(host.clone())
    }

    fn to_host(matrix: &Host) -> Result<Host> {
        Ok(matrix.clone())
    }

    fn is_same(left: &Host, right: &Host) -> bool {
        left.is_same(right)
    }

    fn row_range(matrix: &Host, rows: Range<usize>) -> Result<Host> {
        Ok(matrix.row_range(rows))
    }

    fn column_range(matrix: &Host, columns: Range<usize>) -> Result<Host> {
        Ok(matrix.column_range(columns))
    }

    fn reshape(matrix: &Host, shape: Shape) -> Result<Host> {
        Ok(matrix.reshape(shape))
    }

    fn normalize(
        kind: NormKind,
        x: &Host,
        residual: Option<&Host>,
        weight: &Host,
        bias: Option<&Host>,
        epsilon: f32,
    ) -> Result<Normalized<Host>> {
        let bias = bias.map(Host::dense);
        Ok(norm::forward(kind, x, residual, &scale(kind, weight), bias.as_deref(), epsilon))
    }

    fn normalize_backward(
        kind: NormKind,
        normalized: &Host,
        inverse_std: &Host,
        weight: &Host,
        output_gradient: &Host,
    ) -> Result<Host> {
        let (inverse, weight) = (inverse_std.dense(), scale(kind, weight));
        Ok(norm::backward(kind, normalized, &inverse, &weight, output_gradient))
    }

    fn activate(kind: Activation, x: &Host) -> Result<Host> {
        Ok(activation::forward(kind, x))
    }

    fn activate_backward(kind: Activation, x: &Host, output_gradient: &Host) -> Result<Host> {
        Ok(activation::backward(kind, x, output_gradient))
    }

    fn soft_cap(x: &Host, cap: f32) -> Result<Host> {
        Ok(soft_cap::forward(x, cap))
    }

    fn soft_cap_backward(capped: &Host, output_gradient: &Host, cap: f32) -> Result<Host> {
        Ok(soft_cap::backward(capped, output_gradient, cap))
    }

    fn gate(kind: Activation, gate: &Host, up: &Host) -> Result<Host> {
        Ok(activation::gated_forward(kind, gate, up))
    }

    fn gate_backward(
        kind: Activation,
        gate: &Host,
        up: &Host,
        output_gradient: &Host,
    ) -> Result<(Host, Host)> {
        Ok(activation::gated_backward(kind, gate, up, output_gradient))
    }

    fn attend(qkv: &Host, shape: &AttentionShape) -> Result<(Host, Host)> {
        Ok(match shape.is_plain() {
            true => attention::forward(qkv, shape),
            false => scored_attention::forward(qkv, None, shape),
        })
    }

    fn attend_backward(
        qkv: &Host,
        output: &Host,
        log_sums: &Host,
        output_gradient: &Host,
        shape: &AttentionShape,
    ) -> Result<Host> {
        Ok(match shape.is_plain() {
            true => attention::backward(qkv, output, log_sums, output_gradient, shape),
            false => {
                let saved = (output, log_sums);
                scored_attention::backward(qkv, None, saved, output_gradient, shape).qkv
            }
        })
    }

    fn attend_relative(
        qkv: &Host,
        relative: &Relative<Host>,
        shape: &AttentionShape,
    ) -> Result<(Host, Host)> {
        Ok(scored_attention::forward(qkv, Some(relative), shape))
    }

    fn attend_relative_backward(
        qkv: &Host,
        relative: &Relative<Host>,
        output: &Host,
        log_sums: &Host,
        output_gradient: &Host,
        shape: &AttentionShape,
    ) -> Result<RelativeGradients<Host>> {
        let saved = (output, log_sums);
        Ok(scored_attention::backward(qkv, Some(relative), saved, output_gradient, shape))
    }

    fn new_cache(sequences: usize) -> HostCache {
        HostCache::new(sequences)
    }

    fn cached_sequences(cache: &HostCache) -> usize {
        cache.sequences()
    }

    fn add_sequences(cache: &mut HostCache, count: usize) {
        cache.add(count);
    }

    fn select(cache: &mut HostCache, origins: &[usize]) {
        cache.select(origins);
    }

    fn attend_cached(cache: &mut HostCache, qkv: &Host, shape: &AttentionShape) -> Result<Host> {
        Ok(cache.attend(qkv, shape))
    }

    fn rotate(
        mut x: Host,
        columns: usize,
        frequencies: &[f32],
        positions: &[u32],
        direction: f32,
    ) -> Result<Host> {
        rotary::turn(&mut x, columns, frequencies, positions, direction);
        Ok(x)
    }

    fn add(a: &Host, b: &Host) -> Result<Host> {
        Ok(rows::add(a, b))
    }

    fn scale_rows(x: &Host, factors: &[f32]) -> Result<Host> {
        Ok(rows::scale_rows(x, factors))
    }

    fn lerp(mut average: Host, x: &Host, weight: f32) -> Result<Host> {
        rows::lerp(&mut average, x, weight);
        Ok(average)
    }

    fn scale_columns(x: &Host, factors: &[f32]) -> Result<Host> {
        Ok(rows::scale_columns(x, factors))
    }

    fn weigh_rows(x: &Host, indices: Option<&[u32]>, weights: &CoordinateWeights) -> Result<Host> {
        let columns = x.columns();
        Ok(Host::build(x.rows(), columns, |out| {
            for (i, out) in out.chunks_exact_mut(columns.max(1)).enumerate() {
                let row = indices.map_or(i, |indices| indices[i] as usize);
                let weights = &weights.values()[row * columns..];
                for ((out, x), weight) in out.iter_mut().zip(x.row(i)).zip(weights) {
                    // Zero times infinity is not zero.
                    *out = if *weight == 0.0 { 0.0 } else { x * weight };
                }
            }
        }))
    }

    fn gather(table: &Host, indices: &[u32]) -> Result<Host> {
        Ok(rows::gather(table, indices))
    }

    fn scatter(x: &Host, indices: &[u32], rows: usize) -> Result<Host> {
        Ok(rows::scatter(x, indices, rows))
    }

    fn scatter_onto(mut onto: Host, x: &Host, indices: &[u32]) -> Result<Host> {
        rows::scatter_onto(&mut onto, x, indices);
        Ok(onto)
    }

    fn column_sums(x: &Host) -> Result<Host> {
        Ok(rows::column_sums(x))
    }

    fn weighted_column_sums(x: &Host, factors: &[f32]) -> Result<Host> {
        Self::column_sums(&Self::scale_rows(x, factors)?)
    }

    fn vector_sums(xs: &[&Host], factors: &[f32]) -> Result<Vec<Host>> {
        Ok(rows::vector_sums(xs, factors))
    }

    fn column_sums_of_product(a: &Host, b: &Host) -> Result<Host> {
        Ok(rows::column_sums_of_product(a, b))
    }

    fn cross_entropy(
        logits: &Host,
        targets: &[u32],
        weights: Option<&[f32]>,
    ) -> Result<(Host, Option<Host>)> {
        let (losses, gradient) = loss::cross_entropy(logits, targets, weights);
        Ok((Host::from_vec(losses.len(), 1, losses), gradient))
    }

    fn likely(logits: &Host, temperature: f32, below: f32) -> Result<Vec<Likely>> {
        Ok(likely::likely(logits, temperature, below))
    }

    fn sample(logits: &Host, temperature: f32, uniforms: &[f64]) -> Result<Vec<u32>> {
        Ok(likely::sample(logits, temperature, uniforms))
    }

    fn softmax(logits: &Host) -> Result<Host> {
        Ok(loss::softmax(logits))
    }

    fn drop_out(dropout: Dropout, x: &Host) -> Result<Host> {
        Ok(dropout::apply(dropout, x))
    }

    fn release_and_update(
        states: Vec<UpdateState<Host>>,
        all: &[ParameterUpdate],
    ) -> Result<Vec<UpdateState<Host>>> {
        // Parameters in parallel: many are too small to occupy all cores.
        let each = states.into_par_iter().zip(all);
        Ok(each.map(|(state, update)| updates::release_and_update(state, update)).collect())
    }

    fn gradient_means(
        statistic: GradientStatistic,
        gradients: &[NoisyGradient<Host>],
    ) -> Result<Vec<GradientMeans>> {
        Ok(gradients.iter().map(|noisy| means::gradient_means(statistic, noisy)).collect())
    }

    fn draft((): &(), [rows, columns]: Shape) -> Draft {
        Draft::new(Host::build(rows, columns, |_| {}))
    }

    fn draft_sum(device: &(), shape: Shape) -> Draft {
        Self::draft(device, shape)
    }

    fn draft_onto(matrix: Host) -> Draft {
        Draft::new(matrix)
    }

    fn fill_rows(draft: &mut Draft, block: &Block, row: &Host) -> Result<()> {
        draft.set_bias(block, row);
        Ok(())
    }

    fn add_matrix(draft: &mut Draft, block: &Block, matrix: &Host) -> Result<()> {
        draft.write_bias(block);
        let (stride, how) = (draft.columns(), block.update());
        parallel::rows(
            draft.values_mut(),
            stride,
            #[inline(always)]
            |first, out| {
                for (i, out) in out.chunks_exact_mut(stride).enumerate() {
                    let (row, out) = (matrix.row(first + i), &mut out[block.columns.clone()]);
                    match how {
                        Update::Add => out.iter_mut().zip(row).for_each(|(y, x)| *y += x),
                        _ => out.copy_from_slice(row),
                    }
                }
            },
        );
        Ok(())
    }

    fn add_product(
        draft: &mut Draft,
        block: &Block,
        scale: f32,
        left: Operand<Host>,
        right: Operand<Host>,
    ) -> Result<()> {
        let bias = draft.take_bias(block);
        let bias = bias.as_ref().map(Host::dense);
        let how = bias.as_deref().map_or(block.update(), Update::Bias);
        let stride = draft.columns();
        if let Some(out) = draft.values_mut().get_mut(block.columns.start..) {
            if right.matrix.compact().is_some() {
                multiply_compact(out, stride, how, scale, view(left), right);
            } else {
                multiply(out, stride, how, scale, view(left), view(right), true);
            }
        }
        Ok(())
    }

    fn add_weighted_product(
        draft: &mut Draft,
        block: &Block,
        left: &Host,
        weights: &RowWeights,
        right: &Host,
    ) -> Result<()> {
        draft.write_bias(block);
        let (weights, kept) = (weights.values(), weights.kept());
        if let Some(kept) = kept {
            let left = Self::scale_rows(left, weights)?;
            let right = Self::scale_rows(right, &kept)?;
            let left = Operand { matrix: &left, transposed: true };
            let right = Operand { matrix: &right, transposed: false };
            return Self::add_product(draft, block, 1.0, left, right);
        }
        let stride = draft.columns();
        let out = draft.values_mut();
        if !out.is_empty() {
            multiply_weighted(out, stride, block.update(), left, weights, right);
        }
        Ok(())
    }

    fn finish(draft: Draft) -> Result<Host> {
        Ok(draft.finish())
    }

    fn panels(matrix: Operand<Host>) -> Option<Panels> {
        matrix.matrix.compact().is_none().then(|| Panels::of(view(matrix)))
    }

    fn uses_panels(rows: usize) -> bool {
        rows <= panels::MOST_ROWS
    }

    fn add_panels(draft: &mut Draft, block: &Block, left: &Host, right: &Panels) -> bool {
        draft.write_bias(block);
        let stride = draft.columns();
        if let Some(out) = draft.values_mut().get_mut(block.columns.start..) {
            right.multiply(out, stride, block.update(), View::of(left));
        }
        true
    }

    fn per_unit(_: &Host, units: usize) -> Result<Vec<f64>> {
        Ok(vec![0.0; units])
    }

    fn computed_per_unit(values: &mut Vec<f64>) -> Result<Vec<f64>> {
        Ok(values.clone())
    }

    fn products(onto: (&mut Vec<f64>, f64), a: &Host, es: &[&Host], ranges: Ranges) -> Result<()> {
        unit_norms::add(onto, &unit_norms::products(a, es, ranges, None));
        Ok(())
    }

    fn product_under(
        onto: (&mut Vec<f64>, f64),
        (a, w): (&Host, &[f32]),
        (e, u): (&Host, &[f32]),
        ranges: Ranges,
    ) -> Result<()> {
        let weights = unit_norms::ColumnWeights { a: w, e: u };
        unit_norms::add(onto, &unit_norms::products(a, &[e], ranges, Some(weights)));
        Ok(())
    }

    fn inner_products(
        onto: (&mut Vec<f64>, f64),
        left: (&Host, &Host, Ranges),
        right: (&Host, &Host, Ranges),
    ) -> Result<()> {
        unit_norms::add(onto, &unit_norms::inner_products(left, right));
        Ok(())
    }

    fn table(onto: (&mut Vec<f64>, f64), indices: &[u32], e: &Host, ranges: Ranges) -> Result<()> {
        unit_norms::add(onto, &unit_norms::table_rows(indices, e, ranges, None));
        Ok(())
    }

    fn table_with_product(
        onto: (&mut Vec<f64>, f64),
        table: (&[u32], &Host, Ranges),
        product: (&Host, &Host, Ranges),
    ) -> Result<()> {
        unit_norms::add(onto, &unit_norms::table_with_product(table, product));
        Ok(())
    }

    fn table_with_table(
        onto: (&mut Vec<f64>, f64),
        left: (&[u32], &Host, Ranges),
        right: (&[u32], &Host, Ranges),
    ) -> Result<()> {
        unit_norms::add(onto, &unit_norms::table_with_table(left, right));
        Ok(())
    }

    fn weighted_products(
        onto: &mut [(&mut Vec<f64>, f64)],
        (left, right): (&Host, &Host),
        ranges: Ranges,
        weights: &[&CoordinateWeights],
    ) -> Result<()> {
        let weights: Vec<&[f32]> = weights.iter().map(|weights| weights.values()).collect();
        let products = unit_norms::weighted_products(left, right, ranges, &weights);
        for ((sums, times), product) in onto.iter_mut().zip(products) {
            unit_norms::add((sums, *times), &product);
        }
        Ok(())
    }

    fn weighted_table(
        onto: (&mut Vec<f64>, f64),
        indices: &[u32],
        e: &Host,
        ranges: Ranges,
        weights: &CoordinateWeights,
    ) -> Result<()> {
        let rows = unit_norms::table_rows(indices, e, ranges, Some(weights.values()));
        unit_norms::add(onto, &rows);
        Ok(())
    }

    fn squared_rows(onto: (&mut Vec<f64>, f64), rows: &Host, weights: SquareWeights) -> Result<()> {
        unit_norms::add(onto, &unit_norms::squared_rows(rows, weights));
        Ok(())
    }

    fn unit_gradients(left: &Host, right: &Host, ranges: Ranges) -> Result<Host> {
        Ok(unit_norms::gradients(left, right, ranges))
    }

    fn row_sums(pairs: &[(Option<&Host>, &Host)], ranges: Ranges) -> Result<Vec<Host>> {
        Ok(pairs.iter().map(|(a, e)| unit_norms::row_sums(*a, e, ranges)).collect())
    }
}
