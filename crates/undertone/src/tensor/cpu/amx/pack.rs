//! From rows of `f32` to tiles of bfloat16 parts.

use super::tiles::{STEP_TILES, Tile};
use crate::tensor::cpu::matmul::View;
use crate::tensor::cpu::simd::widest;

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
    /// Packs the lanes `first .. first + 32` for all of the depth; what is beyond the matrix is zero.
    pub fn pack_panel(&self, first: usize, tiles: &mut [Tile], layout: Layout) {
        widest(
            #[inline(always)]
            || {
                let mut block = [0.0_f32; 512];
                for (step, tiles) in tiles.chunks_exact_mut(STEP_TILES).enumerate() {
                    for half in 0..2 {
                        let parts = [0, 1, 2].map(|part| 2 * part + half);
                        let lanes_are_rows = self.fill(&mut block, first + 16 * half, step * K_STEP);
                        if lanes_are_rows {
                            split_along_k(&block, tiles, parts);
                        } else {
                            split_across_k(&block, tiles, parts);
                        }
                        if lanes_are_rows != (layout == Layout::LanesAreRows) {
                            parts.into_iter().for_each(|part| transpose(&mut tiles[part]));
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

/// Rows become columns: blocks of 8 × 8 change places, then those of 4, 2 and 1 inside them, each with two shuffles of whole rows.
#[inline(always)]
fn transpose(tile: &mut Tile) {
    exchange::<8>(&mut tile.0);
    exchange::<4>(&mut tile.0);
    exchange::<2>(&mut tile.0);
    exchange::<1>(&mut tile.0);
}

#[inline(always)]
fn exchange<const SIZE: usize>(rows: &mut [[u32; 16]; 16]) {
    for upper in (0..16).filter(|row| row & SIZE == 0) {
        let (one, other) = (rows[upper], rows[upper + SIZE]);
        for lane in 0..16 {
            let inside = lane & SIZE == 0;
            rows[upper][lane] = if inside { one[lane] } else { other[lane & !SIZE] };
            rows[upper + SIZE][lane] = if inside { one[lane | SIZE] } else { other[lane] };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let mut tile = Tile(std::array::from_fn(|i| std::array::from_fn(|j| (16 * i + j) as u32)));
        transpose(&mut tile);
        assert!((0..16).all(|i| (0..16).all(|j| tile.0[i][j] == (16 * j + i) as u32)));
    }
}
