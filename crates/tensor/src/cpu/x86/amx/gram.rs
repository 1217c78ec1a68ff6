//! Inner products between the rows of a matrix, at lower precision than a matrix product.
//!
//! A norm is an upper bound in any case, so half of the work suffices. A value is x = h + m + r,
//! where h is the nearest bfloat16 number and m holds the next eight bits, and of two such values
//! only hh', hm' and mh' are multiplied. With |m| ≤ 2⁻⁸|x| and |r| < 2⁻⁷·2⁻⁸|x|, the omitted part
//! mm' + ry + r'(x − r) is below (2⁻¹⁶ + 2·2⁻¹⁵) |xy|.

use super::pack::{K_STEP, Lanes, turn};
use super::tiles::{Configured, SIDE, TWO_PART_TILES, Tile, four_tiles_of_two_parts, room};
use super::{K_BLOCK, LEFT, RIGHT};
use crate::cpu::level::{Amx, Avx512};
use crate::cpu::simd::widest;
use crate::cpu::view::View;

/// The error of an element of a Gram matrix is at most this times Σ|xy|: the omitted part, and 3e-6
/// for rounding.
pub const GRAM_ERROR: f64 = 8e-5;

/// Side length of the stored Gram matrix of `rows` rows.
pub fn gram_side(rows: usize) -> usize {
    rows.next_multiple_of(SIDE)
}

/// Adds Σ_k w_k² x_tk x_sk to the element (t, s) of a square matrix, for all t ≤ s; values below
/// the diagonal are meaningless.
pub fn add_gram(amx: Amx, gram: &mut [f32], rows: View, weights: Option<&[f32]>) {
    let side = gram_side(rows.rows);
    assert_eq!(gram.len(), side * side, "a square of whole tiles");
    assert!(rows.column_stride == 1 && weights.is_none_or(|weights| weights.len() == rows.columns));
    let panels = side / SIDE;
    LEFT.with_borrow_mut(|left| {
        RIGHT.with_borrow_mut(|right| {
            for k_start in (0..rows.columns).step_by(K_BLOCK) {
                let depth = K_BLOCK.min(rows.columns - k_start);
                let panel_tiles = depth.div_ceil(K_STEP) * TWO_PART_TILES;
                let count = panels * panel_tiles;
                let (left, right) = (room(left, count), room(right, count));
                let lanes = Lanes {
                    view: rows,
                    across_columns: false,
                    k_start,
                    depth,
                    scale: 1.0,
                    weights,
                };
                pack(amx.avx512(), &lanes, left, right, panel_tiles);
                let tiles = Configured::new(amx);
                for (i, left) in left.chunks_exact(panel_tiles).enumerate() {
                    for (j, right) in right.chunks_exact(panel_tiles).enumerate().skip(i) {
                        let target = &mut gram[i * SIDE * side + j * SIDE..];
                        four_tiles_of_two_parts(&tiles, left, right, target, side);
                    }
                }
            }
        });
    });
}

/// Packs both sides of all panels: the right side is the left side transposed.
fn pack(avx512: Avx512, lanes: &Lanes, left: &mut [Tile], right: &mut [Tile], panel_tiles: usize) {
    widest(
        #[inline(always)]
        || {
            let steps = panel_tiles / TWO_PART_TILES;
            let mut block = [0.0; 512];
            let tiles =
                left.chunks_exact_mut(TWO_PART_TILES).zip(right.chunks_exact_mut(TWO_PART_TILES));
            for (i, (left, right)) in tiles.enumerate() {
                for half in 0..2 {
                    lanes.fill(&mut block, i / steps * SIDE + 16 * half, i % steps * K_STEP);
                    split(&block, left, half);
                    turn(avx512, &left[half], &mut right[half]);
                    turn(avx512, &left[half + 2], &mut right[half + 2]);
                }
            }
        },
    );
}

/// Writes both parts of sixteen lanes.
#[inline(always)]
fn split(block: &[f32; 512], tiles: &mut [Tile], half: usize) {
    let (rows, _) = block.as_chunks::<16>();
    for lane in 0..16 {
        let (first, second) = (&rows[2 * lane], &rows[2 * lane + 1]);
        let (mut high, mut low) = ([0; 16], [0; 16]);
        for i in 0..16 {
            let (first, second) = (two_parts(first[i]), two_parts(second[i]));
            high[i] = (first[0] >> 16) | second[0];
            low[i] = (first[1] >> 16) | second[1];
        }
        tiles[half].0[lane] = high;
        tiles[half + 2].0[lane] = low;
    }
}

/// h and m, each in the upper 16 bits of an `f32`. If x is NaN or infinite, at least one part is
/// too: m is truncated and not rounded, because rounding could carry into the sign.
#[inline(always)]
fn two_parts(x: f32) -> [u32; 2] {
    const UPPER: u32 = 0xffff_0000;
    let h = x.to_bits().wrapping_add(0x8000) & UPPER;
    let m = (x - f32::from_bits(h)).to_bits() & UPPER;
    [h, m]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_parts_leave_out_no_more_than_is_said() {
        let number = |bits: u32| f32::from_bits(bits);
        for i in 0..3_000_000_u32 {
            // All leading bits, at several magnitudes and with both signs.
            let x = number(0x3f00_0000 + i * 5 + (i % 7) * 0x0080_0000 + ((i % 2) << 31));
            let [h, m] = two_parts(x).map(number);
            let (wide, high, middle) = (f64::from(x), f64::from(h), f64::from(m));
            assert!((wide - high).abs() <= wide.abs() / 256.0, "{x}");
            assert!((wide - high - middle).abs() < wide.abs() / 32_768.0, "{x}");
        }
        for bits in [0x7f80_0000, 0xff80_0000, 0x7f80_0001, 0x7fc0_0000, 0x7fff_ffff, 0xffff_ffff] {
            let parts = two_parts(number(bits)).map(number);
            assert!(parts.iter().any(|part| !part.is_finite()), "{bits:x} became {parts:?}");
        }
    }
}
