//! From rows of `f32` to tiles of bfloat16 parts.

use super::tiles::{SIDE, STEP_TILES, Tile};
use crate::tensor::cpu::matmul::View;
use crate::tensor::cpu::simd::widest;
use std::arch::x86_64::{__m512i, _mm512_load_si512, _mm512_permutex2var_epi32, _mm512_store_si512};

/// Numbers along k in one tile.
pub const K_STEP: usize = 32;

/// How a tile is laid out.
#[derive(Clone, Copy, PartialEq)]
pub enum Layout {
    /// Row `i` holds the pairs of lane `i`: the left side.
    LanesAreRows,
    /// Row `p` holds pair `p` of every lane: the right side.
    PairsAreRows,
}

/// One side of a product: lanes (rows of the left, columns of the right) of numbers along k.
#[derive(Clone, Copy)]
pub struct Lanes<'a> {
    pub view: View<'a>,
    pub across_columns: bool,
    pub k_start: usize,
    pub depth: usize,
    pub scale: f32,
    /// One for each number along k.
    pub weights: Option<&'a [f32]>,
}

impl Lanes<'_> {
    /// Packs neighbouring panels of 32 lanes, the first of which begins at lane `first`, for all of the depth; what is beyond the matrix is zero.
    ///
    /// Step by step, and all panels of a step: where lanes are neighbours in memory, whole rows of it are read and not a line here and there.
    pub fn pack_panels(&self, first: usize, panels: &mut [Tile], panel_tiles: usize, layout: Layout) {
        widest(
            #[inline(always)]
            || {
                let mut block = [0.0_f32; 512];
                for step in 0..panel_tiles / STEP_TILES {
                    for (panel, tiles) in panels.chunks_exact_mut(panel_tiles).enumerate() {
                        let tiles = &mut tiles[step * STEP_TILES..(step + 1) * STEP_TILES];
                        for half in 0..2 {
                            let parts = [0, 1, 2].map(|part| 2 * part + half);
                            let lane = first + SIDE * panel + 16 * half;
                            let lanes_are_rows = self.fill(&mut block, lane, step * K_STEP);
                            if lanes_are_rows {
                                split_along_k(&block, tiles, parts);
                            } else {
                                split_across_k(&block, tiles, parts);
                            }
                            if lanes_are_rows != (layout == Layout::LanesAreRows) {
                                for part in parts {
                                    transpose(&mut tiles[part]);
                                }
                            }
                        }
                    }
                }
            },
        );
    }

    /// 16 lanes of 32 numbers as they lie in memory, scaled: \[lane\]\[k\] if true, \[k\]\[lane\] if not.
    #[inline(always)]
    fn fill(&self, block: &mut [f32; 512], first: usize, k: usize) -> bool {
        let view = &self.view;
        let (lanes, lane_stride, k_stride) = if self.across_columns {
            (view.columns, view.column_stride, view.row_stride)
        } else {
            (view.rows, view.row_stride, view.column_stride)
        };
        let lanes = lanes.saturating_sub(first).min(16);
        let count = self.depth.saturating_sub(k).min(K_STEP);
        let start = first * lane_stride + (self.k_start + k) * k_stride;
        let lanes_are_rows = k_stride == 1;
        if lanes == 16 && count == K_STEP {
            if lanes_are_rows {
                copy_rows::<K_STEP>(block, &view.values[start..], lane_stride);
            } else {
                copy_rows::<16>(block, &view.values[start..], k_stride);
            }
        } else {
            block.fill(0.0);
            let (outer, outer_stride, inner, width) = if lanes_are_rows {
                (lanes, lane_stride, count, K_STEP)
            } else {
                (count, k_stride, lanes, 16)
            };
            if inner > 0 {
                for (i, row) in block.chunks_exact_mut(width).take(outer).enumerate() {
                    row[..inner].copy_from_slice(&view.values[start + i * outer_stride..][..inner]);
                }
            }
        }
        if let Some(weights) = self.weights {
            let weights = &weights[self.k_start + k..][..count];
            if lanes_are_rows {
                for row in block.chunks_exact_mut(K_STEP) {
                    row.iter_mut().zip(weights).for_each(|(x, weight)| *x *= weight);
                }
            } else {
                for (row, weight) in block.chunks_exact_mut(16).zip(weights) {
                    row.iter_mut().for_each(|x| *x *= weight);
                }
            }
        }
        if self.scale != 1.0 {
            block.iter_mut().for_each(|x| *x *= self.scale);
        }
        lanes_are_rows
    }
}

/// Whole rows of a block.
#[inline(always)]
fn copy_rows<const WIDTH: usize>(block: &mut [f32; 512], from: &[f32], stride: usize) {
    for i in 0..512 / WIDTH {
        let row: &[f32; WIDTH] = from[i * stride..].first_chunk().expect("views were checked");
        block[i * WIDTH..(i + 1) * WIDTH].copy_from_slice(row);
    }
}

/// x = h + m + l, each with the upper 16 bits of an `f32` alone.
#[inline(always)]
fn three_parts(x: f32) -> [u32; 3] {
    const UPPER: u32 = 0xffff_0000;
    let h = x.to_bits() & UPPER;
    let rest = x - f32::from_bits(h);
    let m = rest.to_bits() & UPPER;
    let l = (rest - f32::from_bits(m)).to_bits() & UPPER;
    [h, m, l]
}

/// Rows of the block are lanes: neighbours are a pair.
#[inline(always)]
fn split_along_k(block: &[f32; 512], tiles: &mut [Tile], parts: [usize; 3]) {
    for lane in 0..16 {
        for pair in 0..16 {
            let i = K_STEP * lane + 2 * pair;
            let (even, odd) = (three_parts(block[i]), three_parts(block[i + 1]));
            for part in 0..3 {
                tiles[parts[part]].0[lane][pair] = (even[part] >> 16) | odd[part];
            }
        }
    }
}

/// Rows of the block are along k: two rows make sixteen pairs.
#[inline(always)]
fn split_across_k(block: &[f32; 512], tiles: &mut [Tile], parts: [usize; 3]) {
    for pair in 0..16 {
        for lane in 0..16 {
            let i = K_STEP * pair + lane;
            let (even, odd) = (three_parts(block[i]), three_parts(block[i + 16]));
            for part in 0..3 {
                tiles[parts[part]].0[pair][lane] = (even[part] >> 16) | odd[part];
            }
        }
    }
}

/// Rows become columns.
#[inline(always)]
#[allow(unsafe_code)]
fn transpose(tile: &mut Tile) {
    // SAFETY: tiles are only packed where `available` has found AMX and with it AVX-512.
    unsafe { transpose_in_registers(tile) }
}

/// Blocks of 8 × 8 change places, then those of 4, 2 and 1 inside them, each with two shuffles of whole rows.
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
fn transpose_in_registers(tile: &mut Tile) {
    let mut rows: [__m512i; 16] =
        // SAFETY: every row is 64 bytes, and the tile is aligned to as many.
        std::array::from_fn(|i| unsafe { _mm512_load_si512(tile.0[i].as_ptr().cast()) });
    exchange::<8>(&mut rows);
    exchange::<4>(&mut rows);
    exchange::<2>(&mut rows);
    exchange::<1>(&mut rows);
    for (row, out) in rows.into_iter().zip(&mut tile.0) {
        // SAFETY: as above.
        unsafe { _mm512_store_si512(out.as_mut_ptr().cast(), row) };
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
fn exchange<const SIZE: usize>(rows: &mut [__m512i; 16]) {
    /// Which lane of two rows, 0 to 15 or 16 to 31, comes to each place.
    #[repr(align(64))]
    struct Places([i32; 16]);
    const fn places(size: usize, upper: bool) -> Places {
        let mut places = [0; 16];
        let mut lane = 0;
        while lane < 16 {
            let inside = lane & size == 0;
            places[lane] = match (upper, inside) {
                (true, true) => lane,
                (true, false) => 16 + (lane - size),
                (false, true) => lane + size,
                (false, false) => 16 + lane,
            } as i32;
            lane += 1;
        }
        Places(places)
    }
    let (upper, lower) = (const { places(SIZE, true) }, const { places(SIZE, false) });
    // SAFETY: both are 64 bytes, aligned to as many.
    let (upper, lower) =
        unsafe { (_mm512_load_si512(upper.0.as_ptr().cast()), _mm512_load_si512(lower.0.as_ptr().cast())) };
    for i in 0..16 {
        if i & SIZE == 0 {
            let (one, other) = (rows[i], rows[i + SIZE]);
            rows[i] = _mm512_permutex2var_epi32(one, upper, other);
            rows[i + SIZE] = _mm512_permutex2var_epi32(one, lower, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        if !super::super::available() {
            return;
        }
        let mut tile = Tile(std::array::from_fn(|i| std::array::from_fn(|j| (16 * i + j) as u32)));
        transpose(&mut tile);
        assert!((0..16).all(|i| (0..16).all(|j| tile.0[i][j] == (16 * j + i) as u32)));
    }
}
