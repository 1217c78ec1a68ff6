//! Norms from Gram matrices that are stored in memory, block by block: this takes fewer operations
//! than computing pairs in registers ([`super::gram`]), and the bound on the error is added to the
//! result.

use super::{ColumnWeights, Share, not_negative, rows, underflow};
use crate::Host;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::cpu::level::Amx;
use crate::cpu::simd::widest;
use crate::cpu::view::View;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::cpu::x86::amx;
#[cfg(target_arch = "x86_64")]
use crate::cpu::x86::gram::{Registers, add_gram, gram_error};
use std::ops::Range;

/// The instruction set that computes stored Gram matrices; processors with neither do not use them.
#[derive(Clone, Copy, Debug)]
pub enum Writer {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Tiles(Amx),
    #[cfg(target_arch = "x86_64")]
    Registers(Registers),
}

#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
impl Writer {
    /// The writer for Gram matrices of `rows` rows, one for each of `units` units, if storing them
    /// pays off.
    pub fn suiting(rows: usize, units: usize) -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(amx) = Amx::get() {
            return (24..=1024).contains(&rows).then_some(Self::Tiles(amx));
        }
        #[cfg(target_arch = "x86_64")]
        {
            // Each unit is one task: with few long units, most threads would be idle.
            let enough = rows <= 64 || units >= rayon::current_num_threads();
            if (12..=1024).contains(&rows) && enough {
                return Registers::get().map(Self::Registers);
            }
        }
        None
    }

    /// How much faster a stored Gram matrix is than other products of the same size: only half of
    /// it is computed, and tiles use only half of the parts.
    pub fn advantage(self) -> usize {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles(_) => 4,
            #[cfg(target_arch = "x86_64")]
            Self::Registers(_) => 2,
        }
    }

    /// Side length of the stored Gram matrix of `rows` rows.
    fn side(self, rows: usize) -> usize {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Tiles(_) => amx::gram_side(rows),
            #[cfg(target_arch = "x86_64")]
            Self::Registers(_) => rows,
        }
    }

    /// The error of an element is at most this times Σ|xy|, for rows spread over these matrices
    /// side by side.
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

/// Column weights and their square roots: the tile kernel scales both sides by the root, the
/// register kernel one side by the weight.
#[derive(Clone, Copy)]
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), expect(dead_code))]
struct Weights<'a> {
    plain: &'a [f32],
    roots: &'a [f32],
}

/// An upper bound on ‖G‖² for one range, with optional column weights, given with their square
/// roots. Both Gram matrices are stored in `space`.
///
/// Let c be the error of the [`Writer`]. The element (t, s) of the Gram matrix of a has an error of
/// at most c α_t α_s, where α_t² is its diagonal element plus the
/// [underflow](crate::unit_norms#underflow) term; the same holds for e with ε. So the error of ‖G‖²
/// is at most c Σ_{t,s} (α_t α_s |⟨e_t, e_s⟩| + ε_t ε_s |⟨a_t, a_s⟩|) + c² (Σ_t α_t ε_t)². This
/// bound is added, increased by one percent because it is evaluated with the computed matrices.
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

/// Σ |x y|, plus what underflow can have removed from it.
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
