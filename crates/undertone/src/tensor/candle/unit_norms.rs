//! Norms of gradients that are never formed, for each range of rows, on a device: ranges are laid
//! side by side, filled up with zeros.

use super::operations::indices as device_indices;
use crate::tensor::unit_norms::{SLACK, not_negative};
use candle_core::{DType, Result, Tensor};
use std::ops::Range;

/// [ranges, longest, columns]; beyond the end of a range there are zeros.
fn side_by_side(x: &Tensor, ranges: &[Range<usize>]) -> Result<Tensor> {
    let columns = x.dims()[1];
    let longest = ranges.iter().map(ExactSizeIterator::len).max().unwrap_or(0).max(1);
    let zeros = Tensor::zeros((1, columns), DType::F32, x.device())?;
    let filled = Tensor::cat(&[&x.contiguous()?, &zeros], 0)?;
    let beyond = x.dims()[0] as u32;
    let places: Vec<u32> = ranges
        .iter()
        .flat_map(|range| {
            let range = range.clone();
            (0..longest)
                .map(move |i| if i < range.len() { (range.start + i) as u32 } else { beyond })
        })
        .collect();
    filled.index_select(&device_indices(&places, x)?, 0)?.reshape((ranges.len(), longest, columns))
}

fn gram(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.matmul(&b.transpose(1, 2)?.contiguous()?)
}

fn lengths(x: &Tensor) -> Result<Tensor> {
    x.sqr()?.sum(2)?.sqrt()
}

/// Sum over everything but the ranges.
fn per_range(x: &Tensor) -> Result<Vec<f64>> {
    let x = x.flatten_from(1)?.sum(1)?.to_vec1::<f32>()?;
    Ok(x.into_iter().map(f64::from).collect())
}

fn with_slack(inner: Vec<f64>, most: Vec<f64>, others: Vec<f64>) -> Vec<f64> {
    let slack = most.into_iter().zip(others).map(|(x, y)| 2.0 * SLACK * x * y);
    inner.into_iter().zip(slack).map(|(inner, slack)| inner + slack).collect()
}

/// For each range an upper bound of ‖Σ_t e_t ⊗ a_t‖².
pub fn products(a: &Tensor, e: &Tensor, ranges: &[Range<usize>]) -> Result<Vec<f64>> {
    if ranges.is_empty() {
        return Ok(Vec::new());
    }
    let (d, p) = (a.dims()[1], e.dims()[1]);
    let (a, e) = (side_by_side(a, ranges)?, side_by_side(e, ranges)?);
    let squared = if a.dims()[1] * (d + p) < d * p {
        per_range(&(gram(&a, &a)? * gram(&e, &e)?)?)?
    } else {
        per_range(&e.transpose(1, 2)?.contiguous()?.matmul(&a)?.sqr()?)?
    };
    let most = per_range(&(lengths(&a)? * lengths(&e)?)?)?;
    Ok(with_slack(squared.into_iter().map(not_negative).collect(), most.clone(), most))
}

/// The inner product of two such gradients.
pub fn inner_products(
    (a, e, ranges): (&Tensor, &Tensor, &[Range<usize>]),
    (b, f, others): (&Tensor, &Tensor, &[Range<usize>]),
) -> Result<Vec<f64>> {
    if ranges.is_empty() {
        return Ok(Vec::new());
    }
    let (a, e) = (side_by_side(a, ranges)?, side_by_side(e, ranges)?);
    let (b, f) = (side_by_side(b, others)?, side_by_side(f, others)?);
    let inner = per_range(&(gram(&a, &b)? * gram(&e, &f)?)?)?;
    let most = per_range(&(lengths(&a)? * lengths(&e)?)?)?;
    Ok(with_slack(inner, most, per_range(&(lengths(&b)? * lengths(&f)?)?)?))
}

/// The sum of the rows of each range, or of a ⊙ e.
pub fn row_sums(a: Option<&Tensor>, e: &Tensor, ranges: &[Range<usize>]) -> Result<Tensor> {
    if ranges.is_empty() {
        return Tensor::zeros((0, e.dims()[1]), DType::F32, e.device());
    }
    let product = match a {
        Some(a) => (a * e)?,
        None => e.clone(),
    };
    side_by_side(&product, ranges)?.sum(1)
}
