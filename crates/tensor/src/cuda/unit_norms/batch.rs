//! Norms of many products and tables, deferred until they are requested and computed together.

use super::operands::Inputs;
use super::tasks::Tasks;
use super::{
    CudaPerUnit, Onto, SIDE, rounding, shared_of_formed, shared_of_gram, slack_of_tensor_cores,
};
use crate::backend::Ranges;
use crate::cuda::format::NumberFormat;
use crate::cuda::launch::{Grid, arguments};
use crate::cuda::matrix::CudaMatrix;
use crate::cuda::memory::Buffer;
use crate::cuda::source::Source;
use crate::error::Result;
use std::sync::Arc;

/// Norms that are computed together: the tiles of all products in one launch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Three words for each matrix, stored twice because both sides are the same.
    parts: Vec<u64>,
    /// Eight words for each product.
    products: Vec<u64>,
    gram: Tasks,
    formed: Tasks,
    /// Rows of each unit, for each product.
    ranges: Vec<u32>,
    /// Matrices of formed products, without duplicates, and the indices of those that each product
    /// uses.
    normed: Vec<CudaMatrix>,
    norm_of: Vec<u32>,
    matrices: Vec<CudaMatrix>,
    indices: Vec<Arc<Buffer>>,
}

impl Batch {
    /// Defers a product or a table until the sums are requested.
    pub(super) fn push(
        onto: Onto,
        inputs: Inputs,
        es: &[CudaMatrix],
        ranges: Ranges,
        more_slack: f64,
    ) -> Result<()> {
        assert_eq!(onto.sums.units, ranges.len(), "a range for each unit");
        let (gpu, precision) = (es[0].gpu(), es[0].precision());
        let input = match inputs {
            Inputs::Matrices(a, _) => Some(a),
            _ => None,
        };
        let mut all = es.iter().chain(input);
        // Nothing is rounded here: if one matrix is f32, all are converted to f32.
        let wide = all.any(|matrix| matrix.format() == NumberFormat::F32);
        let format = if wide { NumberFormat::F32 } else { NumberFormat::Bf16 };
        let batch = &mut onto.sums.batches[usize::from(format == NumberFormat::Bf16)];
        let input = input.map(|a| a.in_format(format)).transpose()?;
        let es = es.iter().map(|e| e.in_format(format)).collect::<Result<Vec<_>>>()?;
        let indices = match inputs {
            Inputs::Table(indices, _) => {
                let indices = gpu.constant(indices)?;
                batch.indices.push(indices.clone());
                indices.pointer()
            }
            _ => 0,
        };
        let (number, first) = (batch.products.len() / 8, batch.parts.len() / 3);
        // A table has no input; its slot is not read.
        let sides = input.iter().chain((input.is_none()).then_some(&es[0])).chain(&es);
        for part in sides.clone() {
            let words = [part.pointer(), part.stride() as u64, part.columns() as u64];
            batch.parts.extend(words.iter().chain(&words));
        }
        let d = input.as_ref().map_or(usize::MAX, CudaMatrix::columns);
        let p: usize = es.iter().map(CudaMatrix::columns).sum();
        let first_norm = batch.norm_of.len();
        let mut is_formed = false;
        for range in ranges {
            // A Gram matrix of one tile costs no more than reading its rows; of a larger one, only
            // half of the tiles are computed.
            let forms = range.len() > SIDE
                && range.len() as u128 * (d as u128 + p as u128) >= 2 * d as u128 * p as u128;
            if forms && input.is_some() {
                is_formed = true;
                let layers = es.iter().map(CudaMatrix::columns);
                batch.formed.add_formed(range, d, layers, number);
            } else {
                batch.gram.add_norm(range, number);
            }
            batch.gram.end_unit();
            batch.formed.end_unit();
            batch.ranges.extend([range.start as u32, range.end as u32]);
        }
        batch.gram.end_product();
        batch.formed.end_product();
        if is_formed {
            for part in sides {
                let known = batch.normed.iter().position(|other| other.is_same(part));
                let place = known.unwrap_or(batch.normed.len());
                if known.is_none() {
                    batch.normed.push(part.clone());
                }
                batch.norm_of.push(place as u32);
            }
        }
        let longest = ranges.iter().map(|range| range.len()).max().unwrap_or_default();
        let depth = if input.is_some() { d.max(p).max(longest) } else { p.max(longest) };
        let slack = more_slack + 2.1 * slack_of_tensor_cores(format, depth);
        batch.products.extend([
            first as u64,
            es.len() as u64,
            indices,
            slack.to_bits(),
            rounding(precision).to_bits(),
            onto.times.to_bits(),
            first_norm as u64,
            0,
        ]);
        batch.matrices.extend(input);
        batch.matrices.extend(es);
        Ok(())
    }

    /// Computes the norms and adds them.
    pub(super) fn add(self, sums: &CudaPerUnit) -> Result<()> {
        let Some(matrix) = self.matrices.first() else { return Ok(()) };
        let (gpu, format, count) = (matrix.gpu(), matrix.format(), self.products.len() / 8);
        let (products, parts) = (gpu.upload(&self.products)?, gpu.upload(&self.parts)?);
        let launch = |tasks: &Tasks, name, shared: usize| -> Result<Buffer> {
            let partial = gpu.allocate(tasks.count().max(1) * size_of::<[f64; 2]>())?;
            let words = gpu.upload(&tasks.words)?;
            let arguments = arguments![&products, &parts, &words, &partial];
            let kernel = Source::UnitNormsMma(format).kernel(name);
            let grid =
                Grid { blocks: (tasks.count(), 1), threads: (256, 1), shared: shared as u32 };
            // SAFETY: every task is a tile of rows or columns of its product's matrices; the output
            // is new and has two values per task.
            unsafe { gpu.launch(kernel, grid, arguments)? };
            Ok(partial)
        };
        let gram = launch(&self.gram, "unit_gram_all", shared_of_gram(format))?;
        let formed = launch(&self.formed, "unit_formed_all", shared_of_formed(format))?;
        let rows = self.normed.iter().map(CudaMatrix::rows).max().unwrap_or_default();
        let norms = gpu.allocate((rows * self.normed.len()).max(1) * size_of::<f64>())?;
        // Matrices with the same number of rows, usually all of them, share one launch.
        let mut place = 0;
        for same in self.normed.chunk_by(|left, right| left.rows() == right.rows()) {
            let words = same.iter().flat_map(|matrix| {
                [matrix.pointer(), matrix.stride() as u64, matrix.columns() as u64]
            });
            let parts = gpu.upload(&words.collect::<Vec<u64>>())?;
            let to = norms.pointer() + (place * rows * size_of::<f64>()) as u64;
            place += same.len();
            let arguments = arguments![&parts, same[0].rows(), rows, to];
            let kernel = Source::UnitRows(format).kernel("unit_squared_norms");
            let blocks = (same[0].rows().div_ceil(8), same.len());
            let grid = Grid { blocks, threads: (256, 1), shared: 0 };
            // SAFETY: the matrices have this many rows, and the output has room for one value per
            // row.
            unsafe { gpu.launch(kernel, grid, arguments)? };
        }
        // Bound to names: their memory must not be freed before the kernel is on the stream.
        let gram_firsts = gpu.upload(&self.gram.firsts)?;
        let formed_firsts = gpu.upload(&self.formed.firsts)?;
        let (ranges, norm_of) = (gpu.upload(&self.ranges)?, gpu.upload(&self.norm_of)?);
        let arguments = arguments![
            &products,
            count,
            sums.units,
            &gram,
            &gram_firsts,
            &formed,
            &formed_firsts,
            &ranges,
            &norms,
            &norm_of,
            rows,
            &sums.values,
        ];
        let kernel = Source::UnitRows(format).kernel("unit_bounds_all");
        let grid = Grid { blocks: (sums.units, 1), threads: (256, 1), shared: 0 };
        // SAFETY: there are two values per task, first tasks and rows for each product and unit,
        // and squared norms for the matrices of formed products; there is one sum per unit, and the
        // sums are not shared.
        unsafe { gpu.launch(kernel, grid, arguments) }
    }
}
