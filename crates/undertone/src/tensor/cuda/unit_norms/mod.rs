//! Norms and inner products of the gradients of privacy units, which are never written down.
//!
//! **What is added.** Unit i adds c_i Σ_t e_t ⊗ a_t to the sum, with its clipping factor c_i, as a
//! matrix product computes it: in TF32, cuBLAS rounds a_t and c_i e_t, each by at most 2⁻¹⁰ of its
//! numbers (ten bits behind the point, cut off); in bf16, a_t and e_t are bf16 already, and c_i e_t
//! is rounded by at most 2⁻⁸ (seven bits behind the point, rounded to nearest). (Or c_i a_t is, and
//! not e_t: the bound is the same.) Let α_t = ‖a_t‖, ε_t = ‖e_t‖ (of all layers side by
//! side), and M = Σ_t α_t ε_t. Then what is added differs from c_i G, G = Σ_t e_t ⊗ a_t, by at most
//! c_i η M in norm, η = 1.01 · 2⁻⁹ in TF32 and 1.01 · 2⁻⁸ in bf16, by the triangle inequality: so
//! it has a norm of at most c_i (‖G‖ + η M). That sum, not ‖G‖, is what is bounded here; in f32
//! η = 0. What underflow takes away is in α_t and ε_t (see [`crate::tensor::unit_norms`]).
//!
//! **How exact ‖G‖ is.** Every inner product ⟨x, y⟩ of the kernels is off by at most k Σ|xᵢyᵢ|:
//!
//! - in f32, k = 16u(1 + 10⁻⁶) < 9.6 · 10⁻⁷ with u = 2⁻²⁴: sixteen fused multiply-adds, whose
//!   results are added up in f64;
//! - by tensor cores, of bf16: products are exact. Each of the eight instructions for 128 columns
//!   adds 17 numbers, and takes at most 2⁻²³ of the largest away from each, which no number exceeds
//!   that the sum of the absolute values does not: at most 8 · 17 · 2⁻²³ < 1.63 · 10⁻⁵ of that sum.
//!   Adding up the n runs of 128 columns in f32 adds n u: k = 1.7 · 10⁻⁵ + 6 · 10⁻⁸ n;
//! - by tensor cores, of f32 in two halves of bf16: x = h + l + r with |l| ≤ 2⁻⁸|x| and |r| ≤
//!   2⁻¹⁷|x|, so that leaving out l·l′ and r takes less than 3.1 · 10⁻⁵ away; there are three
//!   products for each of four instructions for 64 columns, of at most 1.016 of the size, which
//!   take 2.5 · 10⁻⁵: k = 6 · 10⁻⁵ + 6 · 10⁻⁸ n.
//!
//! *Gram.* X_ts = ⟨a_t, a_s⟩ is off by at most k α_t α_s, and Y_ts = ⟨e_t, e_s⟩ by k ε_t ε_s, so
//! that ‖G‖² = Σ X_ts Y_ts is off by at most Σ (2k + k²) α_t α_s ε_t ε_s = (2k + k²) M². For a
//! table of embeddings, a_t is the unit vector of the token's index: X_ts is exact and α_t = 1.
//!
//! *Formed.* G is off by at most k Σ_t |e_t| ⊗ |a_t| element by element, so that its norm is off by
//! at most k M, and ‖G‖² by at most 2k ‖G‖ M + k² M² ≤ (2k + k²) M².
//!
//! Both are below 2.1 k M², which is added. M itself is √(X_tt Y_tt) summed, and off by less than
//! 2k of itself, or computed in f64. An inner product of two gradients is off by (2k + k²) M M′
//! likewise, and rounding of what is added moves it by at most (2η + η²) M M′ more. Under weights,
//! columns are multiplied by the roots of theirs first, in f32: root and product round by u each on
//! either side, which moves G by at most 4.1 u M, and ‖G‖² by less than 5 · 10⁻⁷ M² more.

mod batch;
mod operands;
mod row_sums;
mod tasks;
mod weighted;

use super::device::CudaDevice;
use super::format::NumberFormat;
use super::launch::{Grid, arguments};
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::rows::scale_columns;
use super::source::Source;
use crate::tensor::CoordinateWeights;
use crate::tensor::backend::Ranges;
use crate::tensor::error::Result;
use batch::Batch;
use operands::{Inputs, Operands};
pub use row_sums::row_sums;
use std::sync::Arc;
use tasks::Tasks;
use undertone_run::Precision;
pub use weighted::{weighted_products, weighted_table};

/// Rows and columns of a tile, as in the kernels.
const SIDE: usize = 64;

/// One f64 for each unit, on a GPU.
#[derive(Debug)]
pub struct CudaPerUnit {
    device: CudaDevice,
    values: Buffer,
    units: usize,
    /// Squared norms of rows that are still to be added: all together, in one launch.
    squares: Vec<Squares>,
    /// Norms of products and tables that are still to be computed, likewise, of f32 and of bf16.
    batches: [Batch; 2],
}

/// Rows that are gradients of a vector parameter, with weights of their columns.
#[derive(Debug)]
struct Squares {
    times: f64,
    rows: CudaMatrix,
    weights: Option<Arc<Buffer>>,
}

impl CudaPerUnit {
    pub(super) fn zeros(device: CudaDevice, units: usize) -> Result<Self> {
        let values = device.gpu.zeros(units * size_of::<f64>())?;
        let (squares, batches) = (Vec::new(), Default::default());
        Ok(Self { device, values, units, squares, batches })
    }

    /// Adds the squared norms that were put off.
    fn add_squares(&mut self) -> Result<()> {
        let squares = std::mem::take(&mut self.squares);
        if squares.is_empty() || self.units == 0 {
            return Ok(());
        }
        let words = squares.iter().flat_map(|Squares { times, rows, weights }| {
            let weights = weights.as_deref().map_or(0, Buffer::pointer);
            let (stride, columns) = (rows.stride() as u64, rows.columns() as u64);
            [rows.pointer(), stride, columns, weights, times.to_bits(), 0]
        });
        let gpu = self.device.gpu;
        let words = gpu.upload(&words.collect::<Vec<u64>>())?;
        let arguments = arguments![&words, squares.len(), &self.values];
        let kernel = Source::UnitRows(NumberFormat::F32).kernel("unit_squares");
        let grid = Grid { blocks: (self.units, 1), threads: (1024, 1), shared: 0 };
        // SAFETY: the words are one structure of six for each vector of f32, which has a row for
        // each unit, and a weight for each column or none; nobody else has the sums.
        unsafe { gpu.launch(kernel, grid, arguments) }
    }

    /// Launches the kernels of all that was put off.
    pub(super) fn compute(&mut self) -> Result<()> {
        self.add_squares()?;
        let batches = std::mem::take(&mut self.batches);
        batches.into_iter().try_for_each(|batch| batch.add(self))
    }

    pub(super) fn computed(&mut self) -> Result<Vec<f64>> {
        self.compute()?;
        let mut found = vec![0.0; self.units];
        // SAFETY: there is a number for each unit.
        unsafe { self.device.gpu.download(self.values.pointer(), &mut found)? };
        Ok(found)
    }
}

/// What rounding of factors can add to the norm of a gradient, as a share of M.
fn rounding(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 0.0,
        Precision::Tf32 => 1.01 / 512.0,
        Precision::Bf16 => 1.01 / 256.0,
    }
}

/// Where bounds are added, and how often.
pub struct Onto<'a> {
    pub sums: &'a mut CudaPerUnit,
    pub times: f64,
}

/// k: what an inner product over so many columns or rows can be off by, as a share of Σ|xᵢyᵢ|.
fn slack_of_tensor_cores(format: NumberFormat, depth: usize) -> f64 {
    let least = match format {
        NumberFormat::Bf16 => 1.7e-5,
        NumberFormat::F32 | NumberFormat::Nf4 => 6e-5,
    };
    least + 6e-8 * depth.div_ceil(64) as f64
}

/// For each range an upper bound of Σ_k ‖Σ_t e_{k,t} ⊗ a_t‖²: several layers may share one input.
pub fn products(onto: Onto, a: &CudaMatrix, es: &[&CudaMatrix], ranges: Ranges) -> Result<()> {
    let a = a.as_factor()?;
    let es = es.iter().map(|e| e.as_factor()).collect::<Result<Vec<_>>>()?;
    bounds(onto, &a, &es, ranges, 0.0)
}

/// The same of one e, under weights w of the columns of a and u of those of e.
pub fn product_under(
    onto: Onto,
    (a, w): (&CudaMatrix, &[f32]),
    (e, u): (&CudaMatrix, &[f32]),
    ranges: Ranges,
) -> Result<()> {
    let roots = |weights: &[f32]| -> Vec<f32> { weights.iter().map(|w| w.sqrt()).collect() };
    let a = scale_columns(&a.as_factor()?, &roots(w))?;
    let e = scale_columns(&e.as_factor()?, &roots(u))?;
    bounds(onto, &a, &[e], ranges, 1e-6)
}

fn bounds(
    onto: Onto,
    a: &CudaMatrix,
    es: &[CudaMatrix],
    ranges: Ranges,
    more_slack: f64,
) -> Result<()> {
    if es.is_empty() || ranges.is_empty() {
        return Ok(());
    }
    let (d, p) = (a.columns(), es.iter().map(|e| e.columns()).sum::<usize>());
    if a.precision() != Precision::F32 {
        let inputs = Inputs::Matrices(a, a);
        return Batch::push(onto, inputs, es, ranges, more_slack);
    }
    let operands = Operands::new(Inputs::Matrices(a, a), &pairs(es))?;
    // A unit has tasks of one kind; the others find no partial sums of it.
    let (mut gram, mut formed) = (Tasks::default(), Tasks::default());
    for range in ranges {
        if range.len() * (d + p) >= d * p {
            formed.add_formed(range, d, es.iter().map(|e| e.columns()), 0);
        } else {
            gram.add_norm(range, 0);
        }
        gram.end_unit();
        formed.end_unit();
    }
    let longest = ranges.iter().map(|range| range.len()).max().unwrap_or_default();
    let slack = more_slack + 2.1 * operands.slack(d.max(p).max(longest));
    if let Some(partial) = operands.gram(&gram)? {
        operands.bounds(&onto, &gram, &partial, None, ranges, slack)?;
    }
    if let Some(partial) = operands.formed(&formed)? {
        let row_norms = operands.row_norms(0)?;
        operands.bounds(&onto, &formed, &partial, Some(&row_norms), ranges, slack)?;
    }
    Ok(())
}

/// For each unit an upper bound of the squared norm of a table's gradient: row `indices[t]` has e_t
/// added.
pub fn table(onto: Onto, indices: &[u32], e: &CudaMatrix, ranges: Ranges) -> Result<()> {
    if e.precision() != Precision::F32 {
        let inputs = Inputs::Table(indices, indices);
        return Batch::push(onto, inputs, std::slice::from_ref(e), ranges, 1e-6);
    }
    let operands = Operands::new(Inputs::Table(indices, indices), &pairs(std::slice::from_ref(e)))?;
    let mut tasks = Tasks::default();
    for range in ranges {
        tasks.add_norm(range, 0);
        tasks.end_unit();
    }
    // Under weights, rows were multiplied by the roots of theirs before.
    let slack = 2.1 * operands.slack(e.columns()) + 1e-6;
    match operands.gram(&tasks)? {
        Some(partial) => operands.bounds(&onto, &tasks, &partial, None, ranges, slack),
        None => Ok(()),
    }
}

/// For each unit an upper bound of ⟨Σ_t e_t ⊗ a_t, Σ_s f_s ⊗ b_s⟩.
pub fn inner_products(
    onto: Onto,
    (a, e, ranges): (&CudaMatrix, &CudaMatrix, Ranges),
    (b, f, others): (&CudaMatrix, &CudaMatrix, Ranges),
) -> Result<()> {
    let operands = Operands::new(Inputs::Matrices(a, b), &[(e.clone(), f.clone())])?;
    let row_norms = [operands.row_norms(0)?, operands.row_norms(1)?];
    operands.inner_bounds(&onto, ranges, others, &row_norms, a.columns().max(e.columns()))
}

/// For each unit an upper bound of the inner product of a table's gradient with Σ_s l_s ⊗ r_s.
pub fn table_with_product(
    onto: Onto,
    (indices, e, ranges): (&[u32], &CudaMatrix, Ranges),
    (left, right, others): (&CudaMatrix, &CudaMatrix, Ranges),
) -> Result<()> {
    let operands = Operands::new(Inputs::Gathered(indices, left), &[(e.clone(), right.clone())])?;
    let of_table = operands.row_norms(0)?;
    // ‖l_s‖ ‖r_s‖ are the norms of the rows of a product.
    let product = Operands::new(Inputs::Matrices(left, left), &pairs(std::slice::from_ref(right)))?;
    let row_norms = [of_table, product.row_norms(0)?];
    operands.inner_bounds(&onto, ranges, others, &row_norms, e.columns())
}

/// For each unit an upper bound of the inner product of the gradients of two uses of one table.
pub fn table_with_table(
    onto: Onto,
    (indices, e, ranges): (&[u32], &CudaMatrix, Ranges),
    (other_indices, f, others): (&[u32], &CudaMatrix, Ranges),
) -> Result<()> {
    let operands = Operands::new(Inputs::Table(indices, other_indices), &[(e.clone(), f.clone())])?;
    let row_norms = [operands.row_norms(0)?, operands.row_norms(1)?];
    operands.inner_bounds(&onto, ranges, others, &row_norms, e.columns())
}

/// The squared norm of each row, each coordinate's square times its weight; rounded up by more than
/// the rounding error of the numbers, which are sums in f32.
pub fn squared_rows(
    onto: Onto,
    rows: &CudaMatrix,
    weights: Option<&CoordinateWeights>,
) -> Result<()> {
    assert_eq!(onto.sums.units, rows.rows(), "a row for each unit");
    let rows = rows.in_format(NumberFormat::F32)?;
    let fit = weights.is_none_or(|weights| weights.values().len() == rows.columns());
    assert!(fit, "a weight for each column");
    let weights = weights.map(|weights| weights.on_gpu(rows.gpu())).transpose()?;
    onto.sums.squares.push(Squares { times: onto.times * (1.0 + 1e-6), rows, weights });
    Ok(())
}

/// For each of several matrices with a row for each unit, the sum of its rows times their factors.
pub fn vector_sums(vectors: &[&CudaMatrix], factors: &[f32]) -> Result<Vec<CudaMatrix>> {
    let Some(first) = vectors.first() else { return Ok(Vec::new()) };
    let gpu = first.gpu();
    let vectors = vectors
        .iter()
        .map(|vector| vector.in_format(NumberFormat::F32))
        .collect::<Result<Vec<_>>>()?;
    let (mut words, mut sums, mut blocks) = (Vec::new(), Vec::new(), 0);
    for vector in &vectors {
        let sum = vector.like_f32(1, vector.columns())?;
        let (stride, columns) = (vector.stride() as u64, vector.columns() as u64);
        words.extend([vector.pointer(), stride, columns, sum.pointer(), blocks as u64]);
        blocks += vector.columns().div_ceil(32);
        sums.push(sum);
    }
    let (words, weights) = (gpu.upload(&words)?, gpu.constant(factors)?);
    let arguments = arguments![&words, vectors.len(), &weights, factors.len()];
    let kernel = Source::UnitRows(NumberFormat::F32).kernel("unit_vector_sums");
    let grid = Grid { blocks: (blocks, 1), threads: (32, 16), shared: 0 };
    // SAFETY: the words are one structure of five for each matrix of f32, which has as many rows as
    // there are factors; the sums are new.
    unsafe { gpu.launch(kernel, grid, arguments)? };
    Ok(sums)
}

/// Each layer on both sides.
fn pairs(layers: &[CudaMatrix]) -> Vec<(CudaMatrix, CudaMatrix)> {
    layers.iter().map(|layer| (layer.clone(), layer.clone())).collect()
}

/// Beginning and end of each range.
fn ends(ranges: Ranges) -> Vec<u32> {
    ranges.iter().flat_map(|range| [range.start as u32, range.end as u32]).collect()
}

/// Bytes of shared memory of a block that computes a tile of a Gram matrix: four tiles of 256 bytes
/// of columns and one tile of results, all with rows eight numbers longer than they are.
fn shared_of_gram(format: NumberFormat) -> usize {
    let bytes = format.bytes();
    4 * SIDE * (256 / bytes + 8) * bytes + SIDE * (SIDE + 8) * size_of::<f32>()
}

/// The same of a formed gradient: tiles of both sides, in halves of bf16.
fn shared_of_formed(format: NumberFormat) -> usize {
    2 * SIDE * (SIDE + 8) * format.bytes()
}
