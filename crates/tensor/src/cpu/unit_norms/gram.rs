//! Norms from Gram matrices: ‖G‖² = Σ_{t,s} ⟨a_t, a_s⟩ ⟨e_t, e_s⟩.

use super::written::wide_dot;
use super::{
    ColumnWeights, RUNNING, SLACK, Share, longest, not_negative, per_pair, rows, underflow,
};
use crate::Host;
use crate::cpu::dots::{HEIGHT, WIDTH, all_pairs, each};
use crate::cpu::level::arch;
use crate::cpu::matmul::multiply;
use crate::cpu::view::Update;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Rows of a Gram matrix per task.
const BLOCK: usize = 64;

/// The start of each block of rows.
pub fn blocks(rows: usize) -> impl Iterator<Item = usize> {
    (0..rows).step_by(BLOCK)
}

/// The contribution to ‖G‖² of the block of rows that starts at `first`.
pub fn block(
    a: &Host,
    es: &[&Host],
    range: &Range<usize>,
    first: usize,
    weights: Option<ColumnWeights>,
) -> Share {
    arch().dispatch(GramBlock { a, es, range, first, weights })
}

/// The contribution to ‖G‖² of a block of rows with itself and, twice, with all later rows of the
/// range.
struct GramBlock<'a> {
    a: &'a Host,
    es: &'a [&'a Host],
    range: &'a Range<usize>,
    first: usize,
    weights: Option<ColumnWeights<'a>>,
}

impl WithSimd for GramBlock<'_> {
    type Output = Share;

    /// Processes six rows with four others at a time; neither Gram matrix is stored.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Share {
        let Self { a, es, range, first, weights } = self;
        let last = range.end - 1;
        let block = range.start + first..range.end.min(range.start + first + BLOCK);
        let mut share = Share::default();
        let lost = (underflow(a.columns()), underflow(es.iter().map(|e| e.columns()).sum()));
        for i in block.clone().step_by(HEIGHT) {
            let height = HEIGHT.min(block.end - i);
            for j in (i..range.end).step_by(WIDTH) {
                // Past the end, the last row is repeated and its products are not used.
                let t: [usize; HEIGHT] = std::array::from_fn(|d| (i + d).min(last));
                let s: [usize; WIDTH] = std::array::from_fn(|d| (j + d).min(last));
                let (mut x, mut y) = ([[0.0; WIDTH]; HEIGHT], [[0.0; WIDTH]; HEIGHT]);
                add_pairs(simd, &mut x, a, t, s, weights.map(|weights| weights.a));
                for e in es {
                    add_pairs(simd, &mut y, e, t, s, weights.map(|weights| weights.e));
                }
                let width = WIDTH.min(range.end - j);
                for (d, (x, y)) in x[..height].iter().zip(&y[..height]).enumerate() {
                    for (c, (x, y)) in x[..width].iter().zip(&y[..width]).enumerate() {
                        let product = x * y;
                        // Each row counts once with itself and twice with each later row; pairs
                        // with earlier rows have already been counted.
                        match (i + d).cmp(&(j + c)) {
                            std::cmp::Ordering::Less => share.squared += 2.0 * product,
                            std::cmp::Ordering::Equal => {
                                share.squared += product;
                                let [x, y] = [*x + lost.0, *y + lost.1].map(not_negative);
                                share.most += (x * y).sqrt();
                            }
                            std::cmp::Ordering::Greater => {}
                        }
                    }
                }
            }
        }
        share
    }
}

/// Adds all inner products of six rows with four others: in `f32` within a run of columns, in `f64`
/// across runs.
///
/// This is not a closure in the loop above: a closure would be compiled without the wide registers
/// and would call a function for every product.
#[inline(always)]
fn add_pairs<S: Simd>(
    simd: S,
    sums: &mut [[f64; WIDTH]; HEIGHT],
    matrix: &Host,
    t: [usize; HEIGHT],
    s: [usize; WIDTH],
    weights: Option<&[f32]>,
) {
    let (left, right) = (each(t, |t| matrix.row(t)), each(s, |s| matrix.row(s)));
    // There is one running sum per register lane, so narrow registers take shorter runs.
    let run = RUNNING * size_of::<S::f32s>() / size_of::<f32>();
    for start in (0..matrix.columns()).step_by(run) {
        let end = matrix.columns().min(start + run);
        let (left, right) =
            (each(left, |row| &row[start..end]), each(right, |row| &row[start..end]));
        let products = all_pairs(simd, left, right, weights.map(|weights| &weights[start..end]));
        for i in 0..HEIGHT {
            for j in 0..WIDTH {
                sums[i][j] += f64::from(products[i][j]);
            }
        }
    }
}

/// All inner products of some rows of one matrix with some rows of another.
pub fn gram((x, range): (&Host, &Range<usize>), (y, other): (&Host, &Range<usize>)) -> Vec<f32> {
    let mut gram = vec![0.0; range.len() * other.len()];
    let (left, right) = (rows(x, range), rows(y, other));
    multiply(&mut gram, other.len(), Update::Overwrite, 1.0, left, right.transposed(), false);
    gram
}

/// For each range, an upper bound on the inner product of two such gradients of the same unit.
pub fn inner_products(
    (a, e, ranges): (&Host, &Host, &[Range<usize>]),
    (b, f, others): (&Host, &Host, &[Range<usize>]),
) -> Vec<f64> {
    per_pair(
        ranges,
        others,
        #[inline(always)]
        |range, other| {
            let inner = wide_dot(&gram((a, range), (b, other)), &gram((e, range), (f, other)));
            inner + 2.0 * SLACK * longest(a, e, range) * longest(b, f, other)
        },
    )
}
