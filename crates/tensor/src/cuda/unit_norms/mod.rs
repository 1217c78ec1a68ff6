//! Norms and inner products of per-unit gradients, which are never stored.
//!
//! **What is added.** Unit i adds c_i Σ_t e_t ⊗ a_t to the sum, with its clipping factor c_i, as a
//! matrix product computes it: in TF32, cuBLAS rounds a_t and c_i e_t, with a relative error of at
//! most 2⁻¹⁰ in each value (ten mantissa bits, truncated); in bf16, a_t and e_t are already bf16,
//! and c_i e_t is rounded with a relative error of at most 2⁻⁸ (seven mantissa bits, rounded to
//! nearest). (Or c_i a_t is rounded instead of c_i e_t: the bound is the same.) Let α_t = ‖a_t‖,
//! ε_t = ‖e_t‖ (of all layers side by side), and M = Σ_t α_t ε_t. By the triangle inequality, what
//! is added differs from c_i G, G = Σ_t e_t ⊗ a_t, by at most c_i η M in norm, with η = 1.01 · 2⁻⁹
//! in TF32 and 1.01 · 2⁻⁸ in bf16, so its norm is at most c_i (‖G‖ + η M). This module bounds ‖G‖ +
//! η M, not ‖G‖; in f32, η = 0. The effect of underflow is included in α_t and ε_t (see
//! [`crate::unit_norms`]).
//!
//! **How accurate ‖G‖ is.** Every inner product ⟨x, y⟩ of the kernels has an error of at most k
//! Σ|xᵢyᵢ|:
//!
//! - in f32, k = 16u(1 + 10⁻⁶) < 9.6 · 10⁻⁷ with u = 2⁻²⁴: sixteen fused multiply-adds, whose
//!   results are summed in f64;
//! - by tensor cores, for bf16: products are exact. Each of the eight instructions for 128 columns
//!   adds 17 numbers, and removes at most 2⁻²³ of the largest from each. No number exceeds the sum
//!   of the absolute values, so the error is at most 8 · 17 · 2⁻²³ < 1.63 · 10⁻⁵ of that sum.
//!   Summing the n runs of 128 columns in f32 adds n u: k = 1.7 · 10⁻⁵ + 6 · 10⁻⁸ n;
//! - by tensor cores, for f32 split into two bf16 halves: x = h + l + r with |l| ≤ 2⁻⁸|x| and |r| ≤
//!   2⁻¹⁷|x|, so that omitting l·l′ and r removes less than 3.1 · 10⁻⁵; there are three products
//!   for each of four instructions for 64 columns, of at most 1.016 times the magnitude, which
//!   remove 2.5 · 10⁻⁵: k = 6 · 10⁻⁵ + 6 · 10⁻⁸ n.
//!
//! *Gram.* X_ts = ⟨a_t, a_s⟩ has an error of at most k α_t α_s, and Y_ts = ⟨e_t, e_s⟩ of at most k
//! ε_t ε_s, so ‖G‖² = Σ X_ts Y_ts has an error of at most Σ (2k + k²) α_t α_s ε_t ε_s = (2k + k²)
//! M². For an embedding table, a_t is the unit vector of the token's index: X_ts is exact and α_t =
//! 1.
//!
//! *Formed.* G has an elementwise error of at most k Σ_t |e_t| ⊗ |a_t|, so its norm has an error of
//! at most k M, and ‖G‖² of at most 2k ‖G‖ M + k² M² ≤ (2k + k²) M².
//!
//! Both errors are below 2.1 k M², which is added. M itself is the sum of √(X_tt Y_tt), with a
//! relative error of less than 2k, or computed in f64. Likewise, an inner product of two gradients
//! has an error of (2k + k²) M M′, and the rounding of what is added changes it by at most (2η +
//! η²) M M′ more. With weights, columns are first multiplied by the square roots of their weights,
//! in f32: root and product each round by u on either side, which changes G by at most 4.1 u M, and
//! ‖G‖² by less than 5 · 10⁻⁷ M² more.

mod batch;
mod kept;
mod operands;
mod row_sums;
mod tasks;
mod weighted;

use super::device::CudaDevice;
use super::format::NumberFormat;
use super::matrix::CudaMatrix;
use super::memory::Buffer;
use super::rows::scale_columns;
use crate::Precision;
use crate::backend::Ranges;
use crate::error::Result;
use batch::Batch;
use kept::Squares;
pub use kept::{gradients, squared_rows, vector_sums};
use operands::{Inputs, Operands};
pub use row_sums::row_sums;
use tasks::Tasks;
pub use weighted::{weighted_products, weighted_table};

/// Rows and columns of a tile, as in the kernels.
const SIDE: usize = 64;

/// One f64 per unit, on a GPU.
#[derive(Debug)]
pub struct CudaPerUnit {
    device: CudaDevice,
    values: Buffer,
    units: usize,
    /// Deferred squared norms of rows, which are all added in one launch.
    squares: Vec<Squares>,
    /// Deferred norms of products and tables: one batch for f32 and one for bf16.
    batches: [Batch; 2],
}

impl CudaPerUnit {
    pub(super) fn zeros(device: CudaDevice, units: usize) -> Result<Self> {
        let values = device.gpu.zeros(units * size_of::<f64>())?;
        let (squares, batches) = (Vec::new(), Default::default());
        Ok(Self { device, values, units, squares, batches })
    }

    /// Adds the deferred squared norms.
    fn add_squares(&mut self) -> Result<()> {
        let squares = std::mem::take(&mut self.squares);
        kept::add_squares(self.device.gpu, &squares, self.units, &self.values)
    }

    /// Launches the kernels of all deferred work.
    pub(super) fn compute(&mut self) -> Result<()> {
        self.add_squares()?;
        let batches = std::mem::take(&mut self.batches);
        batches.into_iter().try_for_each(|batch| batch.add(self))
    }

    pub(super) fn computed(&mut self) -> Result<Vec<f64>> {
        self.compute()?;
        let mut values = vec![0.0; self.units];
        // SAFETY: the buffer has one value per unit.
        unsafe { self.device.gpu.download(self.values.pointer(), &mut values)? };
        Ok(values)
    }
}

/// What rounding of the factors can add to the norm of a gradient, relative to M.
fn rounding(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 0.0,
        Precision::Tf32 => 1.01 / 512.0,
        Precision::Bf16 => 1.01 / 256.0,
    }
}

/// The sums to which bounds are added, and their multiplier.
pub struct Onto<'a> {
    pub sums: &'a mut CudaPerUnit,
    pub times: f64,
}

/// k: the error bound of an inner product over `depth` columns or rows, relative to Σ|xᵢyᵢ|.
fn slack_of_tensor_cores(format: NumberFormat, depth: usize) -> f64 {
    let least = match format {
        NumberFormat::Bf16 => 1.7e-5,
        NumberFormat::F32 | NumberFormat::Nf4 => 6e-5,
    };
    least + 6e-8 * depth.div_ceil(64) as f64
}

/// For each range, an upper bound on Σ_k ‖Σ_t e_{k,t} ⊗ a_t‖²: several layers may share one input.
pub fn products(onto: Onto, a: &CudaMatrix, es: &[&CudaMatrix], ranges: Ranges) -> Result<()> {
    let a = a.as_factor()?;
    let es = es.iter().map(|e| e.as_factor()).collect::<Result<Vec<_>>>()?;
    bounds(onto, &a, &es, ranges, 0.0)
}

/// [`products`] for one e, with weights w for the columns of a and u for those of e.
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
    // Each unit has tasks of only one kind; the other kind has no partial sums for it.
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

/// For each unit, an upper bound on the squared norm of a table's gradient, in which e_t is added
/// to row `indices[t]`.
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
    // With weights, rows have already been multiplied by the square roots of their weights.
    let slack = 2.1 * operands.slack(e.columns()) + 1e-6;
    match operands.gram(&tasks)? {
        Some(partial) => operands.bounds(&onto, &tasks, &partial, None, ranges, slack),
        None => Ok(()),
    }
}

/// For each unit, an upper bound on ⟨Σ_t e_t ⊗ a_t, Σ_s f_s ⊗ b_s⟩.
pub fn inner_products(
    onto: Onto,
    (a, e, ranges): (&CudaMatrix, &CudaMatrix, Ranges),
    (b, f, others): (&CudaMatrix, &CudaMatrix, Ranges),
) -> Result<()> {
    let operands = Operands::new(Inputs::Matrices(a, b), &[(e.clone(), f.clone())])?;
    let row_norms = [operands.row_norms(0)?, operands.row_norms(1)?];
    operands.inner_bounds(&onto, ranges, others, &row_norms, a.columns().max(e.columns()))
}

/// For each unit, an upper bound on the inner product of a table's gradient with Σ_s l_s ⊗ r_s.
pub fn table_with_product(
    onto: Onto,
    (indices, e, ranges): (&[u32], &CudaMatrix, Ranges),
    (left, right, others): (&CudaMatrix, &CudaMatrix, Ranges),
) -> Result<()> {
    let operands = Operands::new(Inputs::Gathered(indices, left), &[(e.clone(), right.clone())])?;
    let of_table = operands.row_norms(0)?;
    // ‖l_s‖ ‖r_s‖ are the row norms of a product.
    let product = Operands::new(Inputs::Matrices(left, left), &pairs(std::slice::from_ref(right)))?;
    let row_norms = [of_table, product.row_norms(0)?];
    operands.inner_bounds(&onto, ranges, others, &row_norms, e.columns())
}

/// For each unit, an upper bound on the inner product of the gradients of two uses of the same
/// table.
pub fn table_with_table(
    onto: Onto,
    (indices, e, ranges): (&[u32], &CudaMatrix, Ranges),
    (other_indices, f, others): (&[u32], &CudaMatrix, Ranges),
) -> Result<()> {
    let operands = Operands::new(Inputs::Table(indices, other_indices), &[(e.clone(), f.clone())])?;
    let row_norms = [operands.row_norms(0)?, operands.row_norms(1)?];
    operands.inner_bounds(&onto, ranges, others, &row_norms, e.columns())
}

/// Pairs each layer with itself, for both sides.
fn pairs(layers: &[CudaMatrix]) -> Vec<(CudaMatrix, CudaMatrix)> {
    layers.iter().map(|layer| (layer.clone(), layer.clone())).collect()
}

/// Start and end of each range.
fn ends(ranges: Ranges) -> Vec<u32> {
    ranges.iter().flat_map(|range| [range.start as u32, range.end as u32]).collect()
}

/// Bytes of shared memory of a block that computes a tile of a Gram matrix: four tiles with 256
/// bytes of columns and one tile of results, all with rows padded by eight values.
fn shared_of_gram(format: NumberFormat) -> usize {
    let bytes = format.bytes();
    4 * SIDE * (256 / bytes + 8) * bytes + SIDE * (SIDE + 8) * size_of::<f32>()
}

/// The same for a formed gradient: tiles of both sides, in bf16 halves.
fn shared_of_formed(format: NumberFormat) -> usize {
    2 * SIDE * (SIDE + 8) * format.bytes()
}
