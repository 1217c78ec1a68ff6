//! Norms and inner products of the gradients of privacy units, computed without forming them; on
//! the host or on a device.
//!
//! Every function takes, for each unit, the range of rows that belong to it, and gives an upper
//! bound of the number that it names: a bound includes what rounding can have taken away.

use super::cpu::unit_norms as cpu;
use super::device::unit_norms as device;
use super::{Matrix, Result, scale_columns};
use std::ops::Range;

type Ranges<'a> = &'a [Range<usize>];

/// Σ_k ‖Σ_t e_{k,t} ⊗ a_t‖², where several layers k share one input.
pub fn products(a: &Matrix, es: &[Matrix], ranges: Ranges) -> Result<Vec<f64>> {
    if let Matrix::Host(a) = a {
        let es = es.iter().map(Matrix::to_host).collect::<Result<Vec<_>>>()?;
        return Ok(cpu::products(a, &es.iter().collect::<Vec<_>>(), ranges, None));
    }
    let mut total = vec![0.0; ranges.len()];
    for e in es {
        let (Matrix::Device(a), Matrix::Device(e)) = (a, e) else {
            panic!("both factors are at one place")
        };
        let squared = device::products(a, e, ranges)?;
        total.iter_mut().zip(squared).for_each(|(total, squared)| *total += squared);
    }
    Ok(total)
}

/// Σ_ij u_i w_j G_ij² of G = Σ_t e_t ⊗ a_t, with weights u of the columns of e and w of those of a.
pub fn product_under(
    a: &Matrix,
    w: &[f32],
    e: &Matrix,
    u: &[f32],
    ranges: Ranges,
) -> Result<Vec<f64>> {
    if let (Matrix::Host(a), Matrix::Host(e)) = (a, e) {
        let weights = cpu::ColumnWeights { a: w, e: u };
        return Ok(cpu::products(a, &[e], ranges, Some(weights)));
    }
    let roots = |weights: &[f32]| -> Vec<f32> { weights.iter().map(|w| w.sqrt()).collect() };
    products(&scale_columns(a, &roots(w))?, &[scale_columns(e, &roots(u))?], ranges)
}

/// ⟨Σ_t e_t ⊗ a_t, Σ_s f_s ⊗ b_s⟩.
pub fn inner_products(
    (a, e, ranges): (&Matrix, &Matrix, Ranges),
    (b, f, others): (&Matrix, &Matrix, Ranges),
) -> Result<Vec<f64>> {
    match (a, e, b, f) {
        (Matrix::Device(a), Matrix::Device(e), Matrix::Device(b), Matrix::Device(f)) => {
            device::inner_products((a, e, ranges), (b, f, others))
        }
        _ => Ok(cpu::inner_products(
            (&a.to_host()?, &e.to_host()?, ranges),
            (&b.to_host()?, &f.to_host()?, others),
        )),
    }
}

/// For each list of weights the sum of w ⊙ G², where G = Σ_t l_t ⊗ r_t is formed. Always on the
/// host, where the weights are.
pub fn weighted_products(
    left: &Matrix,
    right: &Matrix,
    ranges: Ranges,
    weights: &[&[f32]],
) -> Result<Vec<Vec<f64>>> {
    Ok(cpu::weighted_products(&left.to_host()?, &right.to_host()?, ranges, weights))
}

/// The squared norm of a table's gradient, each coordinate's square times its weight: row
/// `indices[t]` has e_t added. Always on the host, where sorting is.
pub fn table_rows(
    indices: &[u32],
    e: &Matrix,
    ranges: Ranges,
    weights: Option<&[f32]>,
) -> Result<Vec<f64>> {
    Ok(cpu::table_rows(indices, &e.to_host()?, ranges, weights))
}

/// The inner product of a table's gradient with Σ_s l_s ⊗ r_s.
pub fn table_with_product(
    (indices, e, ranges): (&[u32], &Matrix, Ranges),
    (left, right, others): (&Matrix, &Matrix, Ranges),
) -> Result<Vec<f64>> {
    let table = (indices, &e.to_host()?, ranges);
    Ok(cpu::table_with_product(table, (&left.to_host()?, &right.to_host()?, others)))
}

/// The inner product of the gradients of two uses of one table.
pub fn table_with_table(
    (indices, e, ranges): (&[u32], &Matrix, Ranges),
    (other_indices, f, others): (&[u32], &Matrix, Ranges),
) -> Result<Vec<f64>> {
    Ok(cpu::table_with_table(
        (indices, &e.to_host()?, ranges),
        (other_indices, &f.to_host()?, others),
    ))
}

/// The sum of each unit's rows of e, or of a ⊙ e: one row for each unit.
pub fn row_sums(a: Option<&Matrix>, e: &Matrix, ranges: Ranges) -> Result<Matrix> {
    match (a, e) {
        (None, Matrix::Device(e)) => device::row_sums(None, e, ranges).map(Matrix::Device),
        (Some(Matrix::Device(a)), Matrix::Device(e)) => {
            device::row_sums(Some(a), e, ranges).map(Matrix::Device)
        }
        _ => {
            let a = a.map(Matrix::to_host).transpose()?;
            Ok(Matrix::Host(cpu::row_sums(a.as_ref(), &e.to_host()?, ranges)))
        }
    }
}
