//! Norms and inner products of the gradients of privacy units, computed without forming them (ghost
//! clipping, book-keeping), on the device of their operands.
//!
//! Every function takes, for each unit, the range of rows that belong to it, and gives an upper
//! bound of the number that it names: a bound includes what rounding can have taken away.

use super::Matrix;
use super::backend::{Backend, Ranges, on_backend};
use super::cpu::Cpu;
use super::cpu::unit_norms as cpu;
use super::cuda::{Cuda, CudaPerUnit};
use super::error::{Error, Result, count, fits};

/// More than twice the error of our matrix products: 2e-7 of Σ|aᵢbᵢ|, and 4e-7 where there is no
/// fused multiply-add.
pub(crate) const SLACK: f64 = 1e-6;

/// Rounding below zero is zero, and a NaN stays one: it must not pass for a short gradient.
pub(crate) fn not_negative(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// One number for each unit, on the device where it was computed.
#[derive(Debug)]
pub enum PerUnit {
    /// In main memory.
    Host(Vec<f64>),
    /// On an NVIDIA GPU.
    Cuda(CudaPerUnit),
}

impl PerUnit {
    /// The numbers, once they are computed.
    pub fn to_vec(&self) -> Result<Vec<f64>> {
        match self {
            Self::Host(values) => Cpu::per_unit_to_vec(values),
            Self::Cuda(values) => Cuda::per_unit_to_vec(values),
        }
    }
}

/// Sums of [`PerUnit`] numbers, each kept where its summands are: nothing is waited for before the
/// sums are asked for.
#[derive(Debug)]
pub struct UnitSums {
    host: Vec<f64>,
    cuda: Option<CudaPerUnit>,
}

impl UnitSums {
    /// Zeros.
    pub fn new(units: usize) -> Self {
        Self { host: vec![0.0; units], cuda: None }
    }

    /// Adds `times` the amounts.
    pub fn add(&mut self, times: f64, amounts: &PerUnit) -> Result<()> {
        match amounts {
            PerUnit::Host(amounts) => Cpu::per_unit_add(&mut self.host, times, amounts),
            PerUnit::Cuda(amounts) => {
                let sums = match &mut self.cuda {
                    Some(sums) => sums,
                    none => none.insert(amounts.zeros_beside()?),
                };
                Cuda::per_unit_add(sums, times, amounts)
            }
        }
    }

    /// The sums.
    pub fn to_vec(&self) -> Result<Vec<f64>> {
        let mut sums = self.host.clone();
        if let Some(cuda) = &self.cuda {
            let others = Cuda::per_unit_to_vec(cuda)?;
            sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
        }
        Ok(sums)
    }
}

/// Inputs and output gradients of one layer must have a row for each token.
fn check(operation: &'static str, a: &Matrix, e: &Matrix, ranges: Ranges) -> Result<()> {
    let rule = "inputs and output gradients must have as many rows";
    fits(a.rows() == e.rows(), operation, a.shape(), e.shape(), rule)?;
    check_ranges(operation, e, ranges)
}

/// The rows of every unit must be rows of the matrix.
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

/// Two lists of ranges must be of the same units.
fn same_units(operation: &'static str, e: &Matrix, ranges: Ranges, others: Ranges) -> Result<()> {
    count(operation, e.shape(), "units", others.len(), ranges.len())
}

/// Σ_k ‖Σ_t e_{k,t} ⊗ a_t‖², where several layers k share one input.
pub fn products(a: &Matrix, es: &[Matrix], ranges: Ranges) -> Result<PerUnit> {
    const NAME: &str = "per-example norm";
    es.iter().try_for_each(|e| check(NAME, a, e, ranges))?;
    on_backend!(NAME, a, |B, at| {
        let es = es.iter().map(|e| at.get(e)).collect::<Result<Vec<_>>>()?;
        Ok(B::wrap_per_unit(B::products(at.get(a)?, &es, ranges)?))
    })
}

/// Σ_ij u_i w_j G_ij² of G = Σ_t e_t ⊗ a_t, with weights u of the columns of e and w of those of a.
pub fn product_under(
    a: &Matrix,
    w: &[f32],
    e: &Matrix,
    u: &[f32],
    ranges: Ranges,
) -> Result<PerUnit> {
    const NAME: &str = "weighted per-example norm";
    check(NAME, a, e, ranges)?;
    count(NAME, a.shape(), "weights", w.len(), a.columns())?;
    count(NAME, e.shape(), "weights", u.len(), e.columns())?;
    on_backend!(NAME, a, |B, at| {
        Ok(B::wrap_per_unit(B::product_under(at.get(a)?, w, at.get(e)?, u, ranges)?))
    })
}

/// ⟨Σ_t e_t ⊗ a_t, Σ_s f_s ⊗ b_s⟩.
pub fn inner_products(
    (a, e, ranges): (&Matrix, &Matrix, Ranges),
    (b, f, others): (&Matrix, &Matrix, Ranges),
) -> Result<PerUnit> {
    const NAME: &str = "per-example inner product";
    check(NAME, a, e, ranges)?;
    check(NAME, b, f, others)?;
    same_units(NAME, e, ranges, others)?;
    on_backend!(NAME, a, |B, at| {
        let one = (at.get(a)?, at.get(e)?, ranges);
        let other = (at.get(b)?, at.get(f)?, others);
        Ok(B::wrap_per_unit(B::inner_products(one, other)?))
    })
}

/// For each list of weights the sum of w ⊙ G², where G = Σ_t l_t ⊗ r_t is formed. Always on the
/// CPU, where the weights are.
pub fn weighted_products(
    left: &Matrix,
    right: &Matrix,
    ranges: Ranges,
    weights: &[&[f32]],
) -> Result<Vec<PerUnit>> {
    const NAME: &str = "weighted per-example norm";
    check(NAME, left, right, ranges)?;
    for weights in weights {
        count(NAME, left.shape(), "weights", weights.len(), left.columns() * right.columns())?;
    }
    let found = cpu::weighted_products(&left.to_host()?, &right.to_host()?, ranges, weights);
    Ok(found.into_iter().map(PerUnit::Host).collect())
}

/// The squared norm of a table's gradient: row `indices[t]` has e_t added.
pub fn table(indices: &[u32], e: &Matrix, ranges: Ranges) -> Result<PerUnit> {
    check_table(indices, e, ranges)?;
    on_backend!("per-example norm of a table", e, |B, at| {
        Ok(B::wrap_per_unit(B::table(indices, at.get(e)?, ranges)?))
    })
}

/// The same, each coordinate's square times its weight. Always on the CPU, where the weights are.
pub fn weighted_table(
    indices: &[u32],
    e: &Matrix,
    ranges: Ranges,
    weights: &[f32],
) -> Result<PerUnit> {
    check_table(indices, e, ranges)?;
    Ok(PerUnit::Host(cpu::table_rows(indices, &e.to_host()?, ranges, Some(weights))))
}

/// The squared norm of each row, each coordinate's square times its weight.
pub fn squared_rows(rows: &Matrix, weights: Option<&[f32]>) -> Result<PerUnit> {
    on_backend!("per-example norm", rows, |B, at| {
        Ok(B::wrap_per_unit(B::squared_rows(at.get(rows)?, weights)?))
    })
}

/// A table's gradient must have an index for each row.
fn check_table(indices: &[u32], e: &Matrix, ranges: Ranges) -> Result<()> {
    const NAME: &str = "per-example norm of a table";
    count(NAME, e.shape(), "indices", indices.len(), e.rows())?;
    check_ranges(NAME, e, ranges)
}

/// The inner product of a table's gradient with Σ_s l_s ⊗ r_s.
pub fn table_with_product(
    (indices, e, ranges): (&[u32], &Matrix, Ranges),
    (left, right, others): (&Matrix, &Matrix, Ranges),
) -> Result<PerUnit> {
    check_table(indices, e, ranges)?;
    check("per-example inner product", left, right, others)?;
    same_units("per-example inner product", e, ranges, others)?;
    on_backend!("per-example inner product", e, |B, at| {
        let table = (indices, at.get(e)?, ranges);
        let product = (at.get(left)?, at.get(right)?, others);
        Ok(B::wrap_per_unit(B::table_with_product(table, product)?))
    })
}

/// The inner product of the gradients of two uses of one table.
pub fn table_with_table(
    (indices, e, ranges): (&[u32], &Matrix, Ranges),
    (other_indices, f, others): (&[u32], &Matrix, Ranges),
) -> Result<PerUnit> {
    check_table(indices, e, ranges)?;
    check_table(other_indices, f, others)?;
    same_units("per-example inner product", e, ranges, others)?;
    on_backend!("per-example inner product", e, |B, at| {
        let one = (indices, at.get(e)?, ranges);
        Ok(B::wrap_per_unit(B::table_with_table(one, (other_indices, at.get(f)?, others))?))
    })
}

/// The sum of each unit's rows of e, or of a ⊙ e: one row for each unit.
pub fn row_sums(a: Option<&Matrix>, e: &Matrix, ranges: Ranges) -> Result<Matrix> {
    const NAME: &str = "per-example sum of rows";
    if let Some(a) = a {
        let rule = "both must have the same shape";
        fits(a.shape() == e.shape(), NAME, a.shape(), e.shape(), rule)?;
    }
    check_ranges(NAME, e, ranges)?;
    on_backend!(NAME, e, |B, at| Ok(B::wrap(B::row_sums(at.option(a)?, at.get(e)?, ranges)?)))
}
