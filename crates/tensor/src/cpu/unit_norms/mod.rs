//! Norms and inner products of gradients that are never formed, one result for each range of rows
//! of a batch.
//!
//! For rows t of inputs a and output gradients e, the gradient of a weight is G = Σ_t e_t ⊗ a_t,
//! and ‖G‖² = Σ_{t,s} ⟨a_t, a_s⟩ ⟨e_t, e_s⟩ needs only two products of size n × n ([`gram`],
//! [`written`]). Where G is smaller than that, it is [`formed`] block by block. The gradient of a
//! [table](`tables`) has only few nonzero rows.
//!
//! A norm that is too small would let an example exceed the clipping norm, so every result is an
//! *upper* bound: it includes everything that rounding can remove, which is [`SLACK`] times the sum
//! Σ ‖a_t‖‖e_t‖ that always bounds ‖G‖.

mod formed;
mod gram;
mod tables;
mod written;

use super::parallel;
use super::simd::{dot, widest};
use super::view::View;
use crate::Host;
use crate::unit_norms::{SLACK, SquareWeights, UNDERFLOW, not_negative};
use std::ops::Range;

pub use formed::{gradients, weighted_products};
pub use gram::inner_products;
pub use tables::{table_rows, table_with_product, table_with_table};
use written::Writer;

fn rows<'a>(matrix: &'a Host, range: &Range<usize>) -> View<'a> {
    part(matrix, range, 0..matrix.columns())
}

fn part<'a>(matrix: &'a Host, range: &Range<usize>, columns: Range<usize>) -> View<'a> {
    let start = (range.start * matrix.stride() + columns.start).min(matrix.span().len());
    View::new(&matrix.span()[start..], range.len(), columns.len(), matrix.stride())
}

/// Adds `times` each amount.
pub fn add((sums, times): (&mut Vec<f64>, f64), amounts: &[f64]) {
    sums.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum += times * amount);
}

/// The squared norm of each row with weights of its coordinates, rounded up by more than the
/// rounding error. The square of an f32 is exact in f64, so that nothing underflows.
pub fn squared_rows(rows: &Host, weights: SquareWeights) -> Vec<f64> {
    parallel::map(rows.rows(), |unit| {
        widest(
            #[inline(always)]
            || {
                let row = rows.row(unit);
                // Loops instead of iterators: code that is inlined here is compiled for wide
                // registers.
                let squared = match weights {
                    SquareWeights::Ones => sum_of_squares(row),
                    SquareWeights::Coordinates(weights) => weighted_squares(row, weights.values()),
                    SquareWeights::Factored { rows, columns } => {
                        let mut sum = 0.0;
                        for (row, weight) in row.chunks(columns.len().max(1)).zip(rows) {
                            sum += f64::from(*weight) * weighted_squares(row, columns);
                        }
                        sum
                    }
                };
                squared * (1.0 + 1e-6)
            },
        )
    })
}

/// Running sums of [`sum_of_squares`].
const LANES: usize = 16;

/// Σ x², in f64.
#[inline(always)]
fn sum_of_squares(values: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for x in chunks {
        for i in 0..LANES {
            lanes[i] += f64::from(x[i]) * f64::from(x[i]);
        }
    }
    let rest: f64 = rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    lanes.iter().sum::<f64>() + rest
}

/// Σ w x², in f64.
#[inline(always)]
fn weighted_squares(values: &[f32], weights: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    let (weight_chunks, weights_left) = weights.as_chunks::<LANES>();
    for (x, w) in chunks.iter().zip(weight_chunks) {
        for i in 0..LANES {
            lanes[i] += f64::from(w[i]) * (f64::from(x[i]) * f64::from(x[i]));
        }
    }
    let rest = rest.iter().zip(weights_left);
    let rest: f64 = rest.map(|(&x, &w)| f64::from(w) * (f64::from(x) * f64::from(x))).sum();
    lanes.iter().sum::<f64>() + rest
}

/// Computes one value per range, on all cores.
fn per_unit(
    ranges: &[Range<usize>],
    number: impl Fn(usize, &Range<usize>) -> f64 + Sync,
) -> Vec<f64> {
    parallel::map(ranges.len(), |i| {
        widest(
            #[inline(always)]
            || number(i, &ranges[i]),
        )
    })
}

/// Computes one value per unit from its two ranges of rows, on all cores.
fn per_pair(
    ranges: &[Range<usize>],
    others: &[Range<usize>],
    number: impl Fn(&Range<usize>, &Range<usize>) -> f64 + Sync,
) -> Vec<f64> {
    per_unit(
        ranges,
        #[inline(always)]
        |unit, range| number(range, &others[unit]),
    )
}

/// Values that one running sum in `f32` accumulates before it is added to a wider one. In rows as
/// wide as a vocabulary, a running sum that contains one large value would lose thousands of small
/// ones.
const RUNNING: usize = 32;
/// The same limit for a [`dot`], which has sixteen running sums.
const RUN: usize = 16 * RUNNING;

/// The inner product of two rows: in `f32` within a run of columns, in `f64` across runs.
#[inline(always)]
fn inner(x: &[f32], y: &[f32]) -> f64 {
    let mut sum = 0.0;
    for (x, y) in x.chunks(RUN).zip(y.chunks(RUN)) {
        sum += f64::from(dot(x, y));
    }
    sum
}

/// The [underflow](crate::unit_norms#underflow) term that is added to the squared norm of a row.
fn underflow(columns: usize) -> f64 {
    columns as f64 * UNDERFLOW
}

/// The norm of a row, including what underflow can have removed from it.
#[inline(always)]
fn length(row: &[f32]) -> f64 {
    (inner(row, row) + underflow(row.len())).sqrt()
}

/// Σ_t ‖a_t‖‖e_t‖ over a range of rows, which bounds the norm of their gradient.
#[inline(always)]
fn longest(a: &Host, e: &Host, range: &Range<usize>) -> f64 {
    // Loops instead of iterators: code that is inlined here is compiled for wide registers.
    let mut sum = 0.0;
    for t in range.clone() {
        sum += length(a.row(t)) * length(e.row(t));
    }
    sum
}

/// Σ_t ‖e_t‖ over some rows.
#[inline(always)]
fn total_length(e: &Host, rows: impl Iterator<Item = usize>) -> f64 {
    let mut sum = 0.0;
    for t in rows {
        sum += length(e.row(t));
    }
    sum
}

/// Weights of the columns of a and of each e: the square of G_ij is multiplied by e's weight i and
/// a's weight j.
#[derive(Clone, Copy)]
pub struct ColumnWeights<'a> {
    pub a: &'a [f32],
    pub e: &'a [f32],
}

/// For each range, an upper bound on Σ_k ‖Σ_t e_{k,t} ⊗ a_t‖²: several layers may share one input.
/// With weights there is only one layer.
pub fn products(
    a: &Host,
    es: &[&Host],
    ranges: &[Range<usize>],
    weights: Option<ColumnWeights>,
) -> Vec<f64> {
    let (d, p) = (a.columns(), es.iter().map(|e| e.columns()).sum::<usize>());
    let mut tasks = Vec::new();
    for (unit, range) in ranges.iter().enumerate() {
        let writer = Writer::suiting(range.len(), ranges.len());
        if range.len() * (d + p) >= writer.map_or(1, Writer::advantage) * d * p {
            tasks.extend(
                formed::blocks(d, es).map(|(layer, block)| (unit, Task::Formed(layer, block))),
            );
        } else if let Some(writer) = writer {
            tasks.push((unit, Task::Written(writer)));
        } else {
            tasks.extend(gram::blocks(range.len()).map(|first| (unit, Task::Gram(first))));
        }
    }
    let root = |weights: &[f32]| weights.iter().map(|w| w.sqrt()).collect::<Vec<f32>>();
    let roots = weights.map(|weights| (root(weights.a), root(weights.e)));
    let roots = roots.as_ref().map(|(a, e)| ColumnWeights { a, e });
    let both = weights.zip(roots).map(|(weights, roots)| [weights, roots]);
    let share = |i: usize, space: &mut Vec<f32>| {
        let (unit, task) = &tasks[i];
        let range = &ranges[*unit];
        match task {
            Task::Gram(first) => gram::block(a, es, range, *first, weights),
            Task::Written(writer) => written::whole(*writer, a, es, range, both, space),
            Task::Formed(layer, block) => {
                formed::block(a, es[*layer], range, block.clone(), weights, space)
            }
        }
    };
    let shares = parallel::map_with_space(tasks.len(), share);
    let mut total = vec![Share::default(); ranges.len()];
    for ((unit, _), share) in tasks.iter().zip(shares) {
        total[*unit].squared += share.squared;
        total[*unit].most += share.most;
    }
    total
        .iter()
        .map(|share| not_negative(share.squared) + 2.0 * SLACK * share.most * share.most)
        .collect()
}

/// Part of the work for one range.
enum Task {
    /// The block of rows that starts here, by Gram matrices in registers.
    Gram(usize),
    /// All rows, by Gram matrices stored in memory.
    Written(Writer),
    /// Some rows of the formed gradient of one layer.
    Formed(usize, Range<usize>),
}

/// The contribution of a task: to the squared norm, and to Σ_t ‖a_t‖‖e_t‖ (where e is that of all
/// layers side by side, or an upper bound), unless the former already includes the rounding error.
#[derive(Clone, Copy, Default)]
struct Share {
    squared: f64,
    most: f64,
}

/// The sum over the rows of each range of e, or of a ⊙ e: one row per range.
pub fn row_sums(a: Option<&Host>, e: &Host, ranges: &[Range<usize>]) -> Host {
    let columns = e.columns();
    let sums = parallel::map(ranges.len(), |i| {
        widest(
            #[inline(always)]
            || {
                let mut sums = vec![0.0_f64; columns];
                for t in ranges[i].clone() {
                    match a {
                        Some(a) => {
                            for ((sum, x), y) in sums.iter_mut().zip(a.row(t)).zip(e.row(t)) {
                                *sum += f64::from(x * y);
                            }
                        }
                        None => {
                            sums.iter_mut().zip(e.row(t)).for_each(|(sum, x)| *sum += f64::from(*x))
                        }
                    }
                }
                sums
            },
        )
    });
    let sums = sums.into_iter().flatten().map(|x| x as f32);
    Host::from_vec(ranges.len(), columns, sums.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuLevel;

    fn matrix(rows: usize, columns: usize, seed: f32) -> Host {
        // Rows that resemble each other, like the tokens of one text, so that their products do not
        // cancel.
        let number = |i: usize| ((i as f32 * 0.37 + seed).sin() + 0.3) * (1.0 + (i % 7) as f32);
        Host::from_vec(rows, columns, (0..rows * columns).map(number).collect())
    }

    /// Σ u_i w_j G_ij² by its definition, in double precision.
    fn plain(a: &Host, es: &[&Host], range: &Range<usize>, weights: Option<ColumnWeights>) -> f64 {
        let mut sum = 0.0;
        for e in es {
            for i in 0..e.columns() {
                for j in 0..a.columns() {
                    let g: f64 = range
                        .clone()
                        .map(|t| f64::from(e.row(t)[i]) * f64::from(a.row(t)[j]))
                        .sum();
                    let weight = weights.map_or(1.0, |w| f64::from(w.e[i]) * f64::from(w.a[j]));
                    sum += weight * g * g;
                }
            }
        }
        sum
    }

    #[test]
    fn every_way_to_a_norm_is_just_above_the_definition() {
        CpuLevel::each(|_| {
            // Lengths at tile boundaries, widths that are not multiples of the tile width, and more
            // than one block along k.
            let lengths = [1, 5, 24, 31, 32, 33, 64, 70];
            let (d, p) = (530, 75);
            let rows: usize = lengths.iter().sum();
            let (a, e, f) = (matrix(rows, d, 0.1), matrix(rows, p, 2.0), matrix(rows, 33, 5.0));
            let (of_a, of_e): (Vec<f32>, Vec<f32>) = (
                (0..d).map(|i| 0.1 + (i % 5) as f32).collect(),
                (0..p).map(|i| 3.0 / (1 + i) as f32).collect(),
            );
            let weights = ColumnWeights { a: &of_a, e: &of_e };
            let roots: [Vec<f32>; 2] = [&of_a, &of_e].map(|w| w.iter().map(|w| w.sqrt()).collect());
            let roots = ColumnWeights { a: &roots[0], e: &roots[1] };
            let mut start = 0;
            for length in lengths {
                let range = start..start + length;
                start += length;
                for (es, weights, roots) in [
                    (vec![&e, &f], None, None),
                    (vec![&e], None, None),
                    (vec![&e], Some(weights), Some(roots)),
                ] {
                    let want = plain(&a, &es, &range, weights);
                    let close = |share: Share, way: &str, above: f64| {
                        let upper = share.squared + 2.0 * SLACK * share.most * share.most;
                        assert!(upper >= want, "{length} rows {way}: {upper} is below {want}");
                        assert!(
                            share.squared <= want * (1.0 + above),
                            "{length} rows {way}: {} {want}",
                            share.squared
                        );
                    };
                    let mut total = Share::default();
                    for first in gram::blocks(length) {
                        let share = gram::block(&a, &es, &range, first, weights);
                        total = Share {
                            squared: total.squared + share.squared,
                            most: total.most + share.most,
                        };
                    }
                    close(total, "in registers", 1e-5);
                    if let Some(writer) = Writer::suiting(length, 1 << 20) {
                        let both = weights.zip(roots).map(|(weights, roots)| [weights, roots]);
                        let share = written::whole(writer, &a, &es, &range, both, &mut Vec::new());
                        close(share, "written down", 5e-3);
                    }
                    let mut total = Share::default();
                    for (layer, block) in formed::blocks(d, &es) {
                        let share =
                            formed::block(&a, es[layer], &range, block, weights, &mut Vec::new());
                        total = Share {
                            squared: total.squared + share.squared,
                            most: total.most + share.most,
                        };
                    }
                    close(total, "formed", 1e-5);
                    let chosen = products(&a, &es, std::slice::from_ref(&range), weights)[0];
                    assert!(
                        chosen >= want && chosen <= want * 1.01,
                        "{length} rows: {chosen} {want}"
                    );
                }
            }
        });
    }

    /// As for one token and a whole vocabulary: one value is large, and all others are negligible
    /// next to its square.
    #[test]
    fn many_small_numbers_are_not_lost_beside_a_large_one() {
        CpuLevel::each(|_| {
            for length in [1, 30] {
                let (d, p) = (64, 60_000);
                let a = matrix(length, d, 0.4);
                let small =
                    |i: usize| if i % p == 3 { -1.0 } else { 2e-5 * (1.0 + (i % 16) as f32) };
                let e = Host::from_vec(length, p, (0..length * p).map(small).collect());
                let all = 0..length;
                let want = plain(&a, &[&e], &all, None);
                let computed = products(&a, &[&e], std::slice::from_ref(&all), None)[0];
                assert!(
                    computed >= want && computed <= want * 1.001,
                    "{length} rows: {computed} {want}"
                );
                let exact: f64 = e.row(0).iter().map(|&x| f64::from(x).powi(2)).sum();
                assert!((super::length(e.row(0)).powi(2) / exact - 1.0).abs() < SLACK);
            }
        });
    }

    #[test]
    fn weights_of_single_elements_count_as_defined() {
        CpuLevel::each(|_| {
            for (length, d, p) in [
                (1, 40, 30),
                (5, 40, 70),
                (20, 33, 100),
                (64, 96, 64),
                (70, 150, 31),
                (530, 20, 45),
            ] {
                let (a, e) = (matrix(length + 3, d, 0.1), matrix(length + 3, p, 2.0));
                let lists: [Vec<f32>; 2] = [0.7, 3.1].map(|seed| {
                    (0..d * p).map(|i| (i as f32 * seed).sin().max(0.0) * (i % 3) as f32).collect()
                });
                let range = 3..length + 3;
                let computed = weighted_products(
                    &e,
                    &a,
                    std::slice::from_ref(&range),
                    &lists.each_ref().map(|list| list.as_slice()),
                );
                for (list, computed) in lists.iter().zip(computed) {
                    let mut want = 0.0;
                    for (i, weight) in list.iter().enumerate() {
                        let product =
                            |t: usize| f64::from(e.row(t)[i / d]) * f64::from(a.row(t)[i % d]);
                        want +=
                            f64::from(*weight) * range.clone().map(product).sum::<f64>().powi(2);
                    }
                    assert!(
                        computed[0] >= want,
                        "{length} rows, {p} × {d}: {} is below {want}",
                        computed[0]
                    );
                    assert!(
                        computed[0] <= want * 1.05,
                        "{length} rows, {p} × {d}: {} is far above {want}",
                        computed[0]
                    );
                }
            }
        });
    }

    #[test]
    fn a_broken_number_is_never_a_short_gradient() {
        CpuLevel::each(|_| {
            for broken in [f32::NAN, f32::INFINITY] {
                for length in [8, 40] {
                    let (mut a, e) =
                        (matrix(length, 400, 0.3).dense().into_owned(), matrix(length, 300, 1.0));
                    a[7 * 400 + 3] = broken;
                    let all = 0..length;
                    let a = Host::from_vec(length, 400, a);
                    let computed = products(&a, &[&e], std::slice::from_ref(&all), None)[0];
                    assert!(
                        !computed.is_finite(),
                        "{broken} in one of {length} rows gave {computed}"
                    );
                }
            }
        });
    }
}
