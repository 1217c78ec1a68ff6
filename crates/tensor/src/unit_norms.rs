//! Norms and inner products of per-unit gradients, computed without forming the gradients (ghost
//! clipping, book-keeping), on the device of the operands.
//!
//! Every function takes the range of rows of each unit and returns an upper bound on the quantity
//! it is named after, which accounts for everything that rounding can remove.
//!
//! # Underflow
//!
//! A relative error bound does not hold where products leave the normal range of f32: the square of
//! 10⁻²³ is 0, and a gradient of 10⁻²³ ⊗ 10¹⁹ over a thousand tokens would pass for zero.
//! Therefore, wherever a bound uses the norm α_t of a row of d values, it uses
//!
//! ```text
//! α′_t = √(α_t² + δ),  δ = 2⁻¹⁰⁰ d
//! ```
//!
//! instead. *Statement:* an inner product of two rows, computed with relative error k ≥ 2·10⁻⁷ in
//! the normal range and with subnormal operands, products and sums flushed to zero, has an error of
//! at most 2k α′_t α′_s. *Proof:* Flushing changes each operand by at most 2⁻¹²⁵ (it may have been
//! split into two bf16 parts), and each of at most eight operations per pair by at most 2⁻¹²⁶. That
//! adds at most η = 2⁻¹²³ d + 2⁻¹²⁵ √d (α_t + α_s) to k α_t α_s. By the Cauchy–Schwarz inequality,
//! α′_t α′_s is at least α_t α_s + δ and at least √δ (α_t + α_s). Hence 2k α′_t α′_s ≥ k α_t α_s +
//! k δ + k √δ (α_t + α_s), with k δ ≥ 2⁻¹²³ d and k √δ ≥ 2⁻¹²⁵ √d. ∎
//!
//! Without flushing, as on a CPU without AMX, η is below 2⁻¹⁴⁸ d, and k α′_t α′_s suffices. All
//! norm bounds hold with α′ in place of α. For the same reason, gradients that are formed have an
//! error of at most 2k Σ_t α′_t ε′_t in norm.
//!
//! The clipped sum is computed in f32 as well: see `Bounds::factors` in `gradient`, in the crate
//! undertone.

use super::backend::{Backend, Ranges, on_backend};
use super::cpu::Cpu;
use super::cpu::unit_norms as cpu;
use super::cuda::{Cuda, CudaPerUnit};
use super::error::{Error, Result, count, fits};
use super::{CoordinateWeights, Matrix};

/// More than twice the error of our matrix products, which is 2e-7 of Σ|aᵢbᵢ|, and 4e-7 without
/// fused multiply-add.
pub(crate) const SLACK: f64 = 1e-6;

/// 2⁻¹⁰⁰, which is added to the squared norm of a row for each of its columns (see
/// [underflow](self#underflow)). The kernels use the same constant.
pub(crate) const UNDERFLOW: f64 = 1.0 / (1_u128 << 100) as f64;

/// Clamps negative rounding errors to zero and keeps NaN, which must not pass for a short gradient.
pub(crate) fn not_negative(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// Checks that inputs and output gradients of a layer have one row per token.
fn check(operation: &'static str, a: &Matrix, e: &Matrix, ranges: Ranges) -> Result<()> {
    let rule = "inputs and output gradients must have the same number of rows";
    fits(a.rows() == e.rows(), operation, a.shape(), e.shape(), rule)?;
    check_ranges(operation, e, ranges)
}

/// Checks that the rows of every unit are rows of the matrix.
fn check_ranges(operation: &'static str, matrix: &Matrix, ranges: Ranges) -> Result<()> {
    let rows = matrix.rows();
    match ranges.iter().find(|range| range.start > range.end || range.end > rows) {
        None => Ok(()),
        Some(range) => {
            let (matrix, index) = (matrix.shape(), range.end.max(range.start));
            Err(Error::Index { operation, matrix, what: "row", index })
        }
    }
}

/// Checks that two lists of ranges belong to the same units.
fn same_units(operation: &'static str, e: &Matrix, ranges: Ranges, others: Ranges) -> Result<()> {
    count(operation, e.shape(), "units", others.len(), ranges.len())
}

/// Checks that a table's gradient has one index per row.
fn check_table(indices: &[u32], e: &Matrix, ranges: Ranges) -> Result<()> {
    const NAME: &str = "per-example norm of a table";
    count(NAME, e.shape(), "indices", indices.len(), e.rows())?;
    check_ranges(NAME, e, ranges)
}

/// Weights of the squares of the coordinates in the norm of a formed gradient.
#[derive(Clone, Copy, Debug)]
pub enum SquareWeights<'a> {
    /// All 1.
    Ones,
    /// One for each coordinate.
    Coordinates(&'a CoordinateWeights),
    /// u_i · w_j for coordinate (i, j) of a matrix, whose rows follow each other.
    Factored {
        /// u: one for each row of the matrix.
        rows: &'a [f32],
        /// w: one for each column of the matrix.
        columns: &'a [f32],
    },
}

impl SquareWeights<'_> {
    /// Number of coordinates, unless it may be any.
    fn coordinates(&self) -> Option<usize> {
        match self {
            Self::Ones => None,
            Self::Coordinates(weights) => Some(weights.values().len()),
            Self::Factored { rows, columns } => Some(rows.len() * columns.len()),
        }
    }
}

/// One running sum per unit, kept on the device where the summands are computed, so that the host
/// does not wait until it reads the sums.
#[derive(Debug)]
pub struct UnitSums {
    units: usize,
    host: Option<Vec<f64>>,
    cuda: Option<CudaPerUnit>,
}

/// Accesses the sums that belong to a backend.
trait SumsOf: Backend {
    fn sums(sums: &mut UnitSums) -> &mut Option<Self::PerUnit>;
}

impl SumsOf for Cpu {
    fn sums(sums: &mut UnitSums) -> &mut Option<Vec<f64>> {
        &mut sums.host
    }
}

impl SumsOf for Cuda {
    fn sums(sums: &mut UnitSums) -> &mut Option<CudaPerUnit> {
        &mut sums.cuda
    }
}

impl UnitSums {
    /// Zeros for `units` units.
    pub fn new(units: usize) -> Self {
        Self { units, host: None, cuda: None }
    }

    /// Finishes all pending work and returns the sums.
    pub fn computed(&mut self) -> Result<Vec<f64>> {
        let mut sums = match &mut self.host {
            Some(host) => Cpu::computed_per_unit(host)?,
            None => vec![0.0; self.units],
        };
        if let Some(cuda) = &mut self.cuda {
            let others = Cuda::computed_per_unit(cuda)?;
            sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
        }
        Ok(sums)
    }

    /// Flushes deferred work, so that no operands are kept alive for it, without waiting for the
    /// results.
    pub fn compute(&mut self) -> Result<()> {
        match &mut self.cuda {
            Some(cuda) => Cuda::compute_per_unit(cuda),
            None => Ok(()),
        }
    }

    /// The sums of a backend.
    fn of<B: SumsOf>(&mut self, beside: &B::Matrix) -> Result<&mut B::PerUnit> {
        let units = self.units;
        match B::sums(self) {
            Some(sums) => Ok(sums),
            none => Ok(none.insert(B::per_unit(beside, units)?)),
        }
    }

    /// Adds `times` the given amounts.
    pub fn add(&mut self, times: f64, amounts: &[f64]) {
        let units = self.units;
        let sums = self.host.get_or_insert_with(|| vec![0.0; units]);
        cpu::add((sums, times), amounts);
    }

    /// Adds `times` Σ_k ‖Σ_t e_{k,t} ⊗ a_t‖², where several layers k share one input.
    pub fn add_products(
        &mut self,
        times: f64,
        a: &Matrix,
        es: &[Matrix],
        ranges: Ranges,
    ) -> Result<()> {
        const NAME: &str = "per-example norm";
        es.iter().try_for_each(|e| check(NAME, a, e, ranges))?;
        on_backend!(NAME, a, |B, at| {
            let es = es.iter().map(|e| at.get(e)).collect::<Result<Vec<_>>>()?;
            let a = at.get(a)?;
            B::products((self.of::<B>(a)?, times), a, &es, ranges)
        })
    }

    /// Adds Σ_ij u_i w_j G_ij² for G = Σ_t e_t ⊗ a_t, with weights u for the columns of e and w for
    /// those of a.
    pub fn add_product_under(
        &mut self,
        (a, w): (&Matrix, &[f32]),
        (e, u): (&Matrix, &[f32]),
        ranges: Ranges,
    ) -> Result<()> {
        const NAME: &str = "weighted per-example norm";
        check(NAME, a, e, ranges)?;
        count(NAME, a.shape(), "weights", w.len(), a.columns())?;
        count(NAME, e.shape(), "weights", u.len(), e.columns())?;
        on_backend!(NAME, a, |B, at| {
            let (a, e) = (at.get(a)?, at.get(e)?);
            B::product_under((self.of::<B>(a)?, 1.0), (a, w), (e, u), ranges)
        })
    }

    /// Adds `times` ⟨Σ_t e_t ⊗ a_t, Σ_s f_s ⊗ b_s⟩.
    pub fn add_inner_products(
        &mut self,
        times: f64,
        (a, e, ranges): (&Matrix, &Matrix, Ranges),
        (b, f, others): (&Matrix, &Matrix, Ranges),
    ) -> Result<()> {
        const NAME: &str = "per-example inner product";
        check(NAME, a, e, ranges)?;
        check(NAME, b, f, others)?;
        same_units(NAME, e, ranges, others)?;
        on_backend!(NAME, a, |B, at| {
            let left = (at.get(a)?, at.get(e)?, ranges);
            let right = (at.get(b)?, at.get(f)?, others);
            B::inner_products((self.of::<B>(left.0)?, times), left, right)
        })
    }

    /// Adds the squared norm of a table's gradient, in which e_t is added to row `indices[t]`.
    pub fn add_table(&mut self, indices: &[u32], e: &Matrix, ranges: Ranges) -> Result<()> {
        check_table(indices, e, ranges)?;
        on_backend!("per-example norm of a table", e, |B, at| {
            let e = at.get(e)?;
            B::table((self.of::<B>(e)?, 1.0), indices, e, ranges)
        })
    }

    /// Adds `times` the inner product of a table's gradient with Σ_s l_s ⊗ r_s.
    pub fn add_table_with_product(
        &mut self,
        times: f64,
        (indices, e, ranges): (&[u32], &Matrix, Ranges),
        (left, right, others): (&Matrix, &Matrix, Ranges),
    ) -> Result<()> {
        const NAME: &str = "per-example inner product";
        check_table(indices, e, ranges)?;
        check(NAME, left, right, others)?;
        same_units(NAME, e, ranges, others)?;
        on_backend!(NAME, e, |B, at| {
            let table = (indices, at.get(e)?, ranges);
            let product = (at.get(left)?, at.get(right)?, others);
            B::table_with_product((self.of::<B>(table.1)?, times), table, product)
        })
    }

    /// Adds `times` the inner product of the gradients of two uses of the same table.
    pub fn add_table_with_table(
        &mut self,
        times: f64,
        (indices, e, ranges): (&[u32], &Matrix, Ranges),
        (other_indices, f, others): (&[u32], &Matrix, Ranges),
    ) -> Result<()> {
        check_table(indices, e, ranges)?;
        check_table(other_indices, f, others)?;
        same_units("per-example inner product", e, ranges, others)?;
        on_backend!("per-example inner product", e, |B, at| {
            let left = (indices, at.get(e)?, ranges);
            let right = (other_indices, at.get(f)?, others);
            B::table_with_table((self.of::<B>(left.1)?, times), left, right)
        })
    }

    /// Adds `times` the squared norm of each row, weighting each coordinate's square.
    pub fn add_squared_rows(
        &mut self,
        times: f64,
        rows: &Matrix,
        weights: SquareWeights,
    ) -> Result<()> {
        const NAME: &str = "per-example norm";
        let coordinates = weights.coordinates().unwrap_or(rows.columns());
        count(NAME, rows.shape(), "weights", coordinates, rows.columns())?;
        count(NAME, rows.shape(), "units", rows.rows(), self.units)?;
        on_backend!(NAME, rows, |B, at| {
            let rows = at.get(rows)?;
            B::squared_rows((self.of::<B>(rows)?, times), rows, weights)
        })
    }

    /// Adds `times` the squared norm of a table's gradient, weighting each coordinate's square.
    pub fn add_weighted_table(
        &mut self,
        times: f64,
        (indices, e): (&[u32], &Matrix),
        ranges: Ranges,
        weights: &CoordinateWeights,
    ) -> Result<()> {
        check_table(indices, e, ranges)?;
        on_backend!("per-example norm of a table", e, |B, at| {
            let e = at.get(e)?;
            B::weighted_table((self.of::<B>(e)?, times), indices, e, ranges, weights)
        })
    }
}

/// Adds to each of the sums its multiple of Σ w ⊙ G² under its weights, where G = Σ_t l_t ⊗ r_t is
/// formed once for all of them.
pub fn add_weighted_products(
    onto: &mut [(&mut UnitSums, f64)],
    left: &Matrix,
    right: &Matrix,
    ranges: Ranges,
    weights: &[&CoordinateWeights],
) -> Result<()> {
    const NAME: &str = "weighted per-example norm";
    check(NAME, left, right, ranges)?;
    for weights in weights {
        let coordinates = left.columns() * right.columns();
        count(NAME, left.shape(), "weights", weights.values().len(), coordinates)?;
    }
    on_backend!(NAME, left, |B, at| {
        let (left, right) = (at.get(left)?, at.get(right)?);
        let onto = onto.iter_mut().map(|(sums, times)| Ok((sums.of::<B>(left)?, *times)));
        let mut onto = onto.collect::<Result<Vec<_>>>()?;
        B::weighted_products(&mut onto, (left, right), ranges, weights)
    })
}

/// The gradient Σ_t l_t ⊗ r_t of each unit, formed in f32: one row per unit, `[units, left columns
/// · right columns]`. A unit's gradient depends only on its own rows; on a GPU, bit for bit.
///
pub fn gradients(left: &Matrix, right: &Matrix, ranges: Ranges) -> Result<Matrix> {
    const NAME: &str = "per-example gradient";
    check(NAME, left, right, ranges)?;
    on_backend!(NAME, left, |B, at| {
        Ok(B::wrap(B::unit_gradients(at.get(left)?, at.get(right)?, ranges)?))
    })
}

/// For each pair, the sum of each unit's rows of e, or of a ⊙ e: one row per unit.
pub fn row_sums(pairs: &[(Option<&Matrix>, &Matrix)], ranges: Ranges) -> Result<Vec<Matrix>> {
    const NAME: &str = "per-example sum of rows";
    for (a, e) in pairs {
        if let Some(a) = a {
            let rule = "both must have the same shape";
            fits(a.shape() == e.shape(), NAME, a.shape(), e.shape(), rule)?;
        }
        check_ranges(NAME, e, ranges)?;
    }
    let Some((_, first)) = pairs.first() else { return Ok(Vec::new()) };
    on_backend!(NAME, *first, |B, at| {
        let pairs = pairs.iter().map(|(a, e)| Ok((at.option(*a)?, at.get(e)?)));
        let pairs = pairs.collect::<Result<Vec<_>>>()?;
        Ok(B::row_sums(&pairs, ranges)?.into_iter().map(B::wrap).collect())
    })
}
