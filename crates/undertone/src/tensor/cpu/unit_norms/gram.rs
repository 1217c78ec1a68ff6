//! Norms by Gram matrices: ‖G‖² = Σ_{t,s} ⟨a_t, a_s⟩ ⟨e_t, e_s⟩.

use super::{ColumnWeights, RUNNING, SLACK, Share, longest, not_negative, per_pair, rows};
use crate::tensor::Host;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::tensor::cpu::amx;
use crate::tensor::cpu::dots::{HEIGHT, WIDTH, all_pairs};
use crate::tensor::cpu::level::{Amx, arch};
use crate::tensor::cpu::matmul::multiply;
use crate::tensor::cpu::simd::{dot, widest};
use crate::tensor::cpu::view::Update;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Rows of a Gram matrix that make one task.
const BLOCK: usize = 64;

/// Where the blocks of so many rows begin.
pub fn blocks(rows: usize) -> impl Iterator<Item = usize> {
    (0..rows).step_by(BLOCK)
}

/// The share in ‖G‖² of the block of rows that begins with `first`.
pub fn block(
    a: &Host,
    es: &[&Host],
    range: &Range<usize>,
    first: usize,
    weights: Option<ColumnWeights>,
) -> Share {
    arch().dispatch(GramBlock { a, es, range, first, weights })
}

/// The share in ‖G‖² of a block of rows with itself and, twice, with all later rows of the range.
struct GramBlock<'a> {
    a: &'a Host,
    es: &'a [&'a Host],
    range: &'a Range<usize>,
    first: usize,
    weights: Option<ColumnWeights<'a>>,
}

impl WithSimd for GramBlock<'_> {
    type Output = Share;

    /// Six rows meet four others at a time; neither Gram matrix is written down.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Share {
        let Self { a, es, range, first, weights } = self;
        let last = range.end - 1;
        let block = range.start + first..range.end.min(range.start + first + BLOCK);
        let mut share = Share::default();
        for i in block.clone().step_by(HEIGHT) {
            let height = HEIGHT.min(block.end - i);
            for j in (i..range.end).step_by(WIDTH) {
                // Beyond the end the last row is taken again, and its products are not used.
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
                        // A row with itself once, with a later one twice; an earlier one has met it
                        // already.
                        match (i + d).cmp(&(j + c)) {
                            std::cmp::Ordering::Less => share.squared += 2.0 * product,
                            std::cmp::Ordering::Equal => {
                                share.squared += product;
                                share.most += not_negative(product).sqrt();
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

/// Adds all inner products of six rows with four others: a run of columns in `f32`, the runs in
/// `f64`.
///
/// Not a closure in the loop above: that would be compiled without the wide registers, and call a
/// function for every product.
#[inline(always)]
fn add_pairs<S: Simd>(
    simd: S,
    sums: &mut [[f64; WIDTH]; HEIGHT],
    matrix: &Host,
    t: [usize; HEIGHT],
    s: [usize; WIDTH],
    weights: Option<&[f32]>,
) {
    let (left, right) = (t.map(|t| matrix.row(t)), s.map(|s| matrix.row(s)));
    // As many running sums as a register has lanes: narrow registers take shorter runs.
    let run = RUNNING * size_of::<S::f32s>() / size_of::<f32>();
    for start in (0..matrix.columns()).step_by(run) {
        let run = start..matrix.columns().min(start + run);
        let (left, right) = (left.map(|row| &row[run.clone()]), right.map(|row| &row[run.clone()]));
        let found = all_pairs(simd, left, right, weights.map(|weights| &weights[run.clone()]));
        for i in 0..HEIGHT {
            for j in 0..WIDTH {
                sums[i][j] += f64::from(found[i][j]);
            }
        }
    }
}

/// AMX tiles, if there are any and they are good for Gram matrices of so many rows.
pub fn tiles_suit(rows: usize) -> Option<Amx> {
    if (24..=1024).contains(&rows) { Amx::get() } else { None }
}

/// An upper bound of ‖G‖² of one range, with both Gram matrices written down; under weights whose
/// roots these are.
///
/// With c = [`amx::GRAM_ERROR`], the element (t, s) of the matrix of a is off by at most c α_t α_s,
/// where α_t² is its diagonal, and so with e and ε. So ‖G‖² is off by at most c Σ_{t,s} (α_t α_s
/// |⟨e_t, e_s⟩| + ε_t ε_s |⟨a_t, a_s⟩|) + c² (Σ_t α_t ε_t)², which is added, with a hundredth more
/// since the matrices in it are those that were computed.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub fn whole_by_tiles(
    tiles: Amx,
    a: &Host,
    es: &[&Host],
    range: &Range<usize>,
    roots: Option<ColumnWeights>,
) -> Share {
    let side = amx::gram_side(range.len());
    let (mut x, mut y) = (vec![0.0; side * side], vec![0.0; side * side]);
    amx::add_gram(tiles, &mut x, rows(a, range), roots.map(|roots| roots.a));
    for e in es {
        amx::add_gram(tiles, &mut y, rows(e, range), roots.map(|roots| roots.e));
    }
    let lengths = |gram: &[f32]| -> Vec<f32> {
        (0..range.len())
            .map(|t| not_negative(f64::from(gram[t * side + t])).sqrt() as f32)
            .collect()
    };
    let (alpha, epsilon) = (lengths(&x), lengths(&y));
    let mut sums = (0.0, 0.0, 0.0);
    widest(
        #[inline(always)]
        || sums = sums_of_grams(&x, &y, side, &alpha, &epsilon),
    );
    let (squared, error, most) = sums;
    let c = 1.01 * amx::GRAM_ERROR;
    Share { squared: not_negative(squared) + c * error + c * c * most * most, most: 0.0 }
}

/// Σ XY, Σ (α_t α_s |Y_ts| + ε_t ε_s |X_ts|) and Σ α_t ε_t.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline(always)]
fn sums_of_grams(
    x: &[f32],
    y: &[f32],
    side: usize,
    alpha: &[f32],
    epsilon: &[f32],
) -> (f64, f64, f64) {
    let count = alpha.len();
    let (mut squared, mut error, mut most) = (0.0, 0.0, 0.0);
    for (t, (x, y)) in x.chunks_exact(side).zip(y.chunks_exact(side)).enumerate().take(count) {
        let (same, both) =
            (f64::from(x[t]) * f64::from(y[t]), f64::from(alpha[t]) * f64::from(epsilon[t]));
        let later = t + 1..count;
        let (x, y) = (&x[later.clone()], &y[later.clone()]);
        squared += same + 2.0 * wide_dot(x, y);
        error += 2.0 * both * both;
        error += 2.0 * f64::from(alpha[t]) * f64::from(dot_of_sizes(&alpha[later.clone()], y));
        error += 2.0 * f64::from(epsilon[t]) * f64::from(dot_of_sizes(&epsilon[later], x));
        most += both;
    }
    (squared, error, most)
}

/// Σ |x y|.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline(always)]
fn dot_of_sizes(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 16];
    for (x, y) in x.chunks(16).zip(y.chunks(16)) {
        for (lane, (x, y)) in lanes.iter_mut().zip(x.iter().zip(y)) {
            *lane += (x * y).abs();
        }
    }
    lanes.iter().sum()
}

/// The inner product of two rows in double precision, with eight running sums.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline(always)]
fn wide_dot(x: &[f32], y: &[f32]) -> f64 {
    let mut lanes = [0.0; 8];
    for (x, y) in x.chunks(8).zip(y.chunks(8)) {
        for (lane, (x, y)) in lanes.iter_mut().zip(x.iter().zip(y)) {
            *lane += f64::from(*x) * f64::from(*y);
        }
    }
    lanes.iter().sum()
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub fn whole_by_tiles(
    tiles: Amx,
    _: &Host,
    _: &[&Host],
    _: &Range<usize>,
    _: Option<ColumnWeights>,
) -> Share {
    match tiles {}
}

/// All inner products of some rows of one matrix with some of another.
pub fn gram((x, range): (&Host, &Range<usize>), (y, other): (&Host, &Range<usize>)) -> Vec<f32> {
    let mut gram = vec![0.0; range.len() * other.len()];
    let (left, right) = (rows(x, range), rows(y, other));
    multiply(&mut gram, other.len(), Update::Overwrite, 1.0, left, right.transposed(), false);
    gram
}

/// For each range an upper bound of the inner product of two such gradients, made of rows of the
/// same units.
pub fn inner_products(
    (a, e, ranges): (&Host, &Host, &[Range<usize>]),
    (b, f, others): (&Host, &Host, &[Range<usize>]),
) -> Vec<f64> {
    per_pair(
        ranges,
        others,
        #[inline(always)]
        |range, other| {
            let inner =
                f64::from(dot(&gram((a, range), (b, other)), &gram((e, range), (f, other))));
            inner + 2.0 * SLACK * longest(a, e, range) * longest(b, f, other)
        },
    )
}
