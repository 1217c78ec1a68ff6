//! The gradient of a table, such as an embedding: e_t is added to row `indices[t]`.

use super::gram::gram;
use super::{SLACK, inner, length, longest, per_pair, per_unit, total_length};
use crate::Host;
use std::ops::Range;

/// For each range, an upper bound on the squared norm of a table's gradient, weighting each
/// coordinate's square.
pub fn table_rows(
    indices: &[u32],
    e: &Host,
    ranges: &[Range<usize>],
    weights: Option<&[f32]>,
) -> Vec<f64> {
    let largest =
        weights.map_or(1.0, |weights| f64::from(weights.iter().copied().fold(0.0, f32::max)));
    per_unit(
        ranges,
        #[inline(always)]
        |_, range| {
            let mut order: Vec<usize> = range.clone().collect();
            order.sort_by_key(|&t| indices[t]);
            let (mut squared, mut most) = (0.0, 0.0);
            let mut sum = vec![0.0_f64; e.columns()];
            for same in order.chunk_by(|&t, &s| indices[t] == indices[s]) {
                most += total_length(e, same.iter().copied());
                sum.fill(0.0);
                for &t in same {
                    sum.iter_mut().zip(e.row(t)).for_each(|(sum, x)| *sum += f64::from(*x));
                }
                squared += match weights {
                    None => sum.iter().map(|x| x * x).sum::<f64>(),
                    Some(weights) => {
                        let first = indices[same[0]] as usize * e.columns();
                        sum.iter().zip(&weights[first..]).map(|(x, w)| x * x * f64::from(*w)).sum()
                    }
                };
            }
            squared + SLACK * largest * most * most
        },
    )
}

/// The inner product of a table's gradient with Σ_s l_s ⊗ r_s, a gradient of the same table:
/// Σ_{t,s} l_s[indices[t]] ⟨e_t, r_s⟩.
pub fn table_with_product(
    (indices, e, ranges): (&[u32], &Host, &[Range<usize>]),
    (left, right, others): (&Host, &Host, &[Range<usize>]),
) -> Vec<f64> {
    per_pair(
        ranges,
        others,
        #[inline(always)]
        |range, other| {
            let gram = gram((e, range), (right, other));
            let mut sum = 0.0;
            for (t, gram) in range.clone().zip(gram.chunks_exact(other.len().max(1))) {
                let column = indices[t] as usize;
                let products = other.clone().zip(gram);
                sum += products
                    .map(|(s, g)| f64::from(left.row(s)[column]) * f64::from(*g))
                    .sum::<f64>();
            }
            let most = total_length(e, range.clone());
            sum + 2.0 * SLACK * most * longest(left, right, other)
        },
    )
}

/// The inner product of the gradients of two uses of the same table.
pub fn table_with_table(
    (indices, e, ranges): (&[u32], &Host, &[Range<usize>]),
    (other_indices, f, others): (&[u32], &Host, &[Range<usize>]),
) -> Vec<f64> {
    per_pair(
        ranges,
        others,
        #[inline(always)]
        |range, other| {
            let pairs = range.clone().flat_map(|t| other.clone().map(move |s| (t, s)));
            let met = pairs.filter(|&(t, s)| indices[t] == other_indices[s]);
            let (mut sum, mut most) = (0.0, 0.0);
            for (t, s) in met {
                sum += inner(e.row(t), f.row(s));
                most += length(e.row(t)) * length(f.row(s));
            }
            sum + SLACK * most
        },
    )
}
