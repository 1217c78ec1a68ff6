//! Norms by Gram matrices that are written down, block by block: fewer operations than pair by pair
//! in registers ([`super::gram`]), and a bound of what they are off by, which is added.

use super::{ColumnWeights, Share, not_negative, rows, underflow};
use crate::tensor::Host;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::tensor::cpu::level::Amx;
use crate::tensor::cpu::simd::widest;
use crate::tensor::cpu::view::View;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::tensor::cpu::x86::amx;
#[cfg(target_arch = "x86_64")]
use crate::tensor::cpu::x86::gram::{Registers, add_gram, gram_error};
use std::ops::Range;

/// What writes Gram matrices down; on processors without either, nothing does.
#[derive(Clone, Copy, Debug)]
pub enum Writer {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Tiles(Amx),
    #[cfg(target_arch = "x86_64")]
    Registers(Registers),
}

#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
impl Writer {
    /// What is good for Gram matrices of so many rows, each of one unit of so many.
    pub fn suiting(rows: usize, units: usize) -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(amx) = Amx::get() {
            return (24..=1024).contains(&rows).then_some(Self::Tiles(amx));
        }
        #[cfg(target_arch = "x86_64")]
        {
            // A unit is one task: with few long ones, most threads would have none.
            let enough = rows <= 64 || units >= rayon::current_num_threads();
            if (12..=1024).contains(&rows) && enough {
                return Registers::get().map(Self::Registers);
            }
        }
        None
    }

    /// How many times as fast a Gram matrix is written down as as many other products are computed:
    /// half of it is computed, and on tiles of half of the parts.
    pub fn advantage(self) -> usize {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles(_) => 4,
            #[cfg(target_arch = "x86_64")]
            Self::Registers(_) => 2,
        }
    }

    /// Rows and columns that the Gram matrix of so many rows takes.
    fn side(self, rows: usize) -> usize {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles(_) => amx::gram_side(rows),
            #[cfg(target_arch = "x86_64")]
            Self::Registers(_) => rows,
        }
    }

    /// An element is off by no more than this times Σ|xy|, for rows that lie side by side in these
    /// matrices.
    fn error(self, matrices: &[&Host]) -> f64 {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles(_) => amx::GRAM_ERROR,
            #[cfg(target_arch = "x86_64")]
            Self::Registers(_) => {
                gram_error(matrices.iter().map(|matrix| matrix.columns()).sum(), matrices.len())
            }
        }
    }

    /// Adds Σ_k w_k x_tk x_sk to the element (t, s), for all t ≤ s.
    fn add(self, gram: &mut [f32], rows: View, weights: Option<Weights>) {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles(tiles) => {
                amx::add_gram(tiles, gram, rows, weights.map(|weights| weights.roots));
            }
            #[cfg(target_arch = "x86_64")]
            Self::Registers(registers) => {
                add_gram(registers, gram, rows, weights.map(|weights| weights.plain));
            }
        }
    }
}

/// Weights of columns, and their roots: tiles multiply both sides, registers one.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
struct Weights<'a> {
    plain: &'a [f32],
    roots: &'a [f32],
}

/// An upper bound of ‖G‖² of one range, under weights of columns, given with their roots. Both Gram
/// matrices are written down in `space`.
///
/// With c the error of the [`Writer`], the element (t, s) of the matrix of a is off by at most
/// c α_t α_s, where α_t² is its diagonal and what [underflow](crate::tensor::unit_norms#underflow)
/// adds to it, and so with e and ε. So ‖G‖² is off by at most c Σ_{t,s}
/// (α_t α_s |⟨e_t, e_s⟩| + ε_t ε_s |⟨a_t, a_s⟩|) + c² (Σ_t α_t ε_t)², which is added, with a
/// hundredth more since the matrices in it are those that were computed.
pub fn whole(
    writer: Writer,
    a: &Host,
    es: &[&Host],
    range: &Range<usize>,
    weights: Option<[ColumnWeights; 2]>,
    space: &mut Vec<f32>,
) -> Share {
    let side = writer.side(range.len());
    space.clear();
    space.resize(2 * side * side, 0.0);
    let (x, y) = space.split_at_mut(side * side);
    let of_a = weights.map(|[plain, roots]| Weights { plain: plain.a, roots: roots.a });
    let of_e = weights.map(|[plain, roots]| Weights { plain: plain.e, roots: roots.e });
    writer.add(x, rows(a, range), of_a);
    for e in es {
        writer.add(y, rows(e, range), of_e);
    }
    let lengths = |gram: &[f32], columns: usize| -> Vec<f32> {
        let squared = |t: usize| f64::from(gram[t * side + t]) + underflow(columns);
        (0..range.len()).map(|t| not_negative(squared(t)).sqrt() as f32).collect()
    };
    let alpha = lengths(x, a.columns());
    let epsilon = lengths(y, es.iter().map(|e| e.columns()).sum());
    let mut sums = (0.0, 0.0, 0.0);
    widest(
        #[inline(always)]
        || sums = sums_of_grams(x, y, side, &alpha, &epsilon),
    );
    let (squared, error, most) = sums;
    let c = 1.01 * writer.error(&[a]).max(writer.error(es));
    Share { squared: not_negative(squared) + c * error + c * c * most * most, most: 0.0 }
}

/// Σ XY, Σ (α_t α_s |Y_ts| + ε_t ε_s |X_ts|) and Σ α_t ε_t.
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
        error += 2.0 * f64::from(alpha[t]) * dot_of_sizes(&alpha[later.clone()], y);
        error += 2.0 * f64::from(epsilon[t]) * dot_of_sizes(&epsilon[later], x);
        most += both;
    }
    (squared, error, most)
}

/// Σ |x y|, and what underflow can have taken away from it.
#[inline(always)]
fn dot_of_sizes(x: &[f32], y: &[f32]) -> f64 {
    let mut lanes = [0.0_f32; 16];
    for (x, y) in x.chunks(16).zip(y.chunks(16)) {
        for (lane, (x, y)) in lanes.iter_mut().zip(x.iter().zip(y)) {
            *lane += (x * y).abs();
        }
    }
    let sum: f32 = lanes.iter().sum();
    f64::from(sum) + x.len() as f64 * f64::from(f32::from_bits(1))
}

/// The inner product of two rows in double precision, with eight running sums.
#[inline(always)]
pub(super) fn wide_dot(x: &[f32], y: &[f32]) -> f64 {
    let mut lanes = [0.0; 8];
    for (x, y) in x.chunks(8).zip(y.chunks(8)) {
        for (lane, (x, y)) in lanes.iter_mut().zip(x.iter().zip(y)) {
            *lane += f64::from(*x) * f64::from(*y);
        }
    }
    lanes.iter().sum()
}
