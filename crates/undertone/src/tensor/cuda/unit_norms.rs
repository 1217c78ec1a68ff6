//! Norms and inner products of the gradients of privacy units, which are never written down.
//!
//! **Upper bounds.** With u = 2⁻²⁴, each inner product of the kernels is off by at most c Σ|xᵢyᵢ|,
//! c = 16u(1 + 10⁻⁶) < 9.6 · 10⁻⁷: sixteen fused multiply-adds in f32, whose results are added up
//! in f64. Let α_t = ‖a_t‖ and ε_t = ‖e_t‖ (of all layers side by side), and M = Σ_t α_t ε_t, which
//! is computed in f64.
//!
//! *Gram.* X_ts = ⟨a_t, a_s⟩ is off by at most c α_t α_s, and Y_ts = ⟨e_t, e_s⟩ by c ε_t ε_s, so
//! that ‖G‖² = Σ X_ts Y_ts is off by at most Σ (2c + c²) α_t α_s ε_t ε_s = (2c + c²) M².
//!
//! *Formed.* G is off by at most c Σ_t |e_t| ⊗ |a_t| element by element, so that its norm is off by
//! at most c M, and ‖G‖² by at most 2c ‖G‖ M + c² M² ≤ (2c + c²) M².
//!
//! Both are below 2 · [`SLACK`] · M², which is added. Inner products of two gradients are off by
//! (2c + c²) M M′ likewise. Under weights, columns are multiplied by the roots of theirs first:
//! root and product round by u each on either side, which moves G by at most 4.1 u M, and ‖G‖² by
//! less than 5 · 10⁻⁷ M² more: 3 · SLACK · M² is added.

use super::device::Gpu;
use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::rows::scale_columns;
use super::source::Source;
use crate::tensor::backend::Ranges;
use crate::tensor::error::Result;
use crate::tensor::unit_norms::{SLACK, not_negative};
use std::ops::Range;

/// Rows and columns of a tile, as in the kernels.
const SIDE: usize = 64;

/// For each range an upper bound of Σ_k ‖Σ_t e_{k,t} ⊗ a_t‖²: several layers may share one input.
pub fn products(a: &CudaMatrix, es: &[&CudaMatrix], ranges: Ranges) -> Result<Vec<f64>> {
    bounds(a, es, ranges, 2.0 * SLACK)
}

/// The same of one e, under weights w of the columns of a and u of those of e.
pub fn product_under(
    a: &CudaMatrix,
    w: &[f32],
    e: &CudaMatrix,
    u: &[f32],
    ranges: Ranges,
) -> Result<Vec<f64>> {
    let roots = |weights: &[f32]| -> Vec<f32> { weights.iter().map(|w| w.sqrt()).collect() };
    let (a, e) = (scale_columns(a, &roots(w))?, scale_columns(e, &roots(u))?);
    bounds(&a, &[&e], ranges, 3.0 * SLACK)
}

fn bounds(a: &CudaMatrix, es: &[&CudaMatrix], ranges: Ranges, slack: f64) -> Result<Vec<f64>> {
    if es.is_empty() || ranges.is_empty() {
        return Ok(vec![0.0; ranges.len()]);
    }
    let pairs: Vec<_> = es.iter().map(|&e| (e, e)).collect();
    let operands = Operands::new((a, a), &pairs)?;
    let (d, p) = (a.columns(), es.iter().map(|e| e.columns()).sum::<usize>());
    // A unit has tasks of one kind; the others find no partial sums of it.
    let is_formed = |range: &Range<usize>| range.len() * (d + p) >= d * p;
    let (mut gram, mut formed) = (Tasks::default(), Tasks::default());
    for range in ranges {
        if is_formed(range) {
            formed.add_formed(range, d, es.iter().map(|e| e.columns()));
        } else {
            gram.add_norm(range);
        }
        gram.end_unit();
        formed.end_unit();
    }
    let row_norms = operands.row_norms(0)?;
    let by_gram = operands.gram(&gram)?;
    let by_forming = operands.formed(&formed)?;
    let mut found = operands.sums(&gram, by_gram.as_ref(), &row_norms, ranges)?;
    if let Some(partial) = &by_forming {
        let further = operands.sums(&formed, Some(partial), &row_norms, ranges)?;
        for ((found, further), range) in found.iter_mut().zip(further).zip(ranges) {
            if is_formed(range) {
                *found = further;
            }
        }
    }
    Ok(found.iter().map(|[sum, most]| not_negative(*sum) + slack * most * most).collect())
}

/// For each unit an upper bound of ⟨Σ_t e_t ⊗ a_t, Σ_s f_s ⊗ b_s⟩.
pub fn inner_products(
    (a, e, ranges): (&CudaMatrix, &CudaMatrix, Ranges),
    (b, f, others): (&CudaMatrix, &CudaMatrix, Ranges),
) -> Result<Vec<f64>> {
    if ranges.is_empty() {
        return Ok(Vec::new());
    }
    let operands = Operands::new((a, b), &[(e, f)])?;
    let mut tasks = Tasks::default();
    for (range, other) in ranges.iter().zip(others) {
        tasks.add_product(range, other);
        tasks.end_unit();
    }
    let partial = operands.gram(&tasks)?;
    let one = operands.sums(&tasks, partial.as_ref(), &operands.row_norms(0)?, ranges)?;
    let other = operands.sums(&tasks, partial.as_ref(), &operands.row_norms(1)?, others)?;
    let both = one.iter().zip(&other);
    Ok(both.map(|([sum, most], [_, other])| sum + 2.0 * SLACK * most * other).collect())
}

/// The sum of the rows of each range, or of a ⊙ e: one row for each range.
pub fn row_sums(a: Option<&CudaMatrix>, e: &CudaMatrix, ranges: Ranges) -> Result<CudaMatrix> {
    let (gpu, columns) = (e.gpu(), e.columns());
    let sums = CudaMatrix::new(gpu, ranges.len(), columns)?;
    let places = gpu.upload(&ends(ranges))?;
    let a_stride = a.map_or(0, CudaMatrix::stride);
    let arguments = arguments![a, a_stride, e, e.stride(), &places, &sums, columns];
    let grid = Grid { blocks: (ranges.len(), columns.div_ceil(128)), threads: (128, 1), shared: 0 };
    // SAFETY: all ranges are rows of both operands; the output is new and has a row for each.
    unsafe { gpu.launch(Source::UnitNorms.kernel("unit_row_sums"), grid, arguments)? };
    Ok(sums)
}

/// Beginning and end of each range.
fn ends(ranges: Ranges) -> Vec<u32> {
    ranges.iter().flat_map(|range| [range.start as u32, range.end as u32]).collect()
}

/// Tiles of work, those of one unit after those of another.
#[derive(Debug)]
struct Tasks {
    /// Eight numbers for each task, as in the kernels.
    words: Vec<u32>,
    /// The first task of each unit, and behind the last the number of tasks.
    firsts: Vec<u32>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { words: Vec::new(), firsts: vec![0] }
    }
}

impl Tasks {
    fn count(&self) -> usize {
        self.words.len() / 8
    }

    fn push(&mut self, range: &Range<usize>, other: &Range<usize>, tile: [usize; 4]) {
        let ends = [range.start, range.end, other.start, other.end];
        self.words.extend(ends.into_iter().chain(tile).map(|word| word as u32));
    }

    fn end_unit(&mut self) {
        self.firsts.push(self.count() as u32);
    }

    /// Tiles of the Gram matrices of a unit: those on the diagonal once, the others twice.
    fn add_norm(&mut self, range: &Range<usize>) {
        for first in (0..range.len()).step_by(SIDE) {
            for second in (first..range.len()).step_by(SIDE) {
                let times = if first == second { 1 } else { 2 };
                self.push(range, range, [first, second, times, 0]);
            }
        }
    }

    /// All tiles of the products of the rows of a unit with those of another side.
    fn add_product(&mut self, range: &Range<usize>, other: &Range<usize>) {
        for first in (0..range.len()).step_by(SIDE) {
            for second in (0..other.len()).step_by(SIDE) {
                self.push(range, other, [first, second, 1, 0]);
            }
        }
    }

    /// Tiles of the gradients of layers with inputs of `d` columns.
    fn add_formed(&mut self, range: &Range<usize>, d: usize, layers: impl Iterator<Item = usize>) {
        for (layer, p) in layers.enumerate() {
            for first in (0..p).step_by(SIDE) {
                for second in (0..d).step_by(SIDE) {
                    self.push(range, range, [first, second, 1, layer]);
                }
            }
        }
    }
}

/// Inputs and output gradients as the kernels find them, and the matrices to keep them alive.
struct Operands<'a> {
    gpu: &'static Gpu,
    rows: [usize; 2],
    inputs: Buffer,
    layers: Buffer,
    count: usize,
    _matrices: Vec<&'a CudaMatrix>,
}

impl<'a> Operands<'a> {
    fn new(
        (a, b): (&'a CudaMatrix, &'a CudaMatrix),
        layers: &[(&'a CudaMatrix, &'a CudaMatrix)],
    ) -> Result<Self> {
        let gpu = a.gpu();
        let part = |m: &CudaMatrix| [m.pointer(), m.stride() as u64, m.columns() as u64];
        let words = |matrices: &[&CudaMatrix]| -> Vec<u64> {
            matrices.iter().flat_map(|matrix| part(matrix)).collect()
        };
        let sides: Vec<&CudaMatrix> = layers.iter().flat_map(|&(e, f)| [e, f]).collect();
        Ok(Self {
            gpu,
            rows: [a.rows(), b.rows()],
            inputs: gpu.upload(&words(&[a, b]))?,
            layers: gpu.upload(&words(&sides))?,
            count: layers.len(),
            _matrices: [vec![a, b], sides].concat(),
        })
    }

    /// ‖a_t‖ · ‖e_t‖ of each row of one side.
    fn row_norms(&self, side: usize) -> Result<Buffer> {
        let rows = self.rows[side];
        let row_norms = self.gpu.allocate(rows * size_of::<f64>())?;
        let arguments = arguments![&self.inputs, &self.layers, self.count, side, &row_norms];
        let kernel = Source::UnitNorms.kernel("unit_row_norms");
        let grid = Grid { blocks: (rows, 1), threads: (128, 1), shared: 0 };
        // SAFETY: all matrices of a side have so many rows; the output is new.
        unsafe { self.gpu.launch(kernel, grid, arguments)? };
        Ok(row_norms)
    }

    fn gram(&self, tasks: &Tasks) -> Result<Option<Buffer>> {
        let further = arguments![self.count];
        self.partial("unit_gram", tasks, further)
    }

    fn formed(&self, tasks: &Tasks) -> Result<Option<Buffer>> {
        self.partial("unit_formed", tasks, &[])
    }

    /// One number for each task, if there are any.
    fn partial(
        &self,
        name: &'static str,
        tasks: &Tasks,
        further: &[super::launch::Argument],
    ) -> Result<Option<Buffer>> {
        if tasks.count() == 0 {
            return Ok(None);
        }
        let partial = self.gpu.allocate(tasks.count() * size_of::<f64>())?;
        let words = self.gpu.upload(&tasks.words)?;
        let arguments =
            [arguments![&self.inputs, &self.layers], further, arguments![&words, &partial]]
                .concat();
        let grid = Grid { blocks: (tasks.count(), 1), threads: (256, 1), shared: 0 };
        // SAFETY: every task is a tile of rows that both sides have, or of columns of a layer that
        // there is; the output is new and has a number for each.
        unsafe { self.gpu.launch(Source::UnitNorms.kernel(name), grid, &arguments)? };
        Ok(Some(partial))
    }

    /// For each unit the sum of its tasks, and that of the row norms.
    fn sums(
        &self,
        tasks: &Tasks,
        partial: Option<&Buffer>,
        row_norms: &Buffer,
        ranges: Ranges,
    ) -> Result<Vec<[f64; 2]>> {
        let sums = self.gpu.allocate(ranges.len() * size_of::<[f64; 2]>())?;
        let firsts = self.gpu.upload(&tasks.firsts)?;
        let places = self.gpu.upload(&ends(ranges))?;
        let partial = partial.map_or(0, Buffer::pointer);
        let arguments = arguments![partial, &firsts, row_norms, &places, &sums];
        let kernel = Source::UnitNorms.kernel("unit_sums");
        let grid = Grid { blocks: (ranges.len(), 1), threads: (128, 1), shared: 0 };
        // SAFETY: without partial sums no unit has a task; all ranges are rows that have a norm;
        // the output is new and has two numbers for each unit.
        unsafe { self.gpu.launch(kernel, grid, arguments)? };
        let mut found = vec![[0.0; 2]; ranges.len()];
        // SAFETY: there are two numbers for each unit.
        unsafe { self.gpu.download(sums.pointer(), &mut found)? };
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_pair_of_rows_as_often_as_it_counts() {
        for length in [1, 63, 64, 65, 200] {
            let mut tasks = Tasks::default();
            tasks.add_norm(&(7..7 + length));
            tasks.end_unit();
            let mut times = vec![0; length * length];
            for task in tasks.words.chunks_exact(8) {
                assert_eq!(&task[..4], &[7, 7 + length as u32, 7, 7 + length as u32]);
                let (first, second) = (task[4] as usize, task[5] as usize);
                for i in first..length.min(first + SIDE) {
                    for j in second..length.min(second + SIDE) {
                        times[i * length + j] += task[6];
                    }
                }
            }
            for i in 0..length {
                for j in 0..=i {
                    let both = times[i * length + j] + times[j * length + i];
                    assert_eq!(both, 2, "rows {i} and {j} of {length}");
                }
            }
            assert_eq!(tasks.firsts, [0, tasks.count() as u32]);
        }
    }
}
