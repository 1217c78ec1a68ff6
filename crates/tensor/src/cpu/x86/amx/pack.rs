//! Packing of `f32` rows into tiles of bfloat16 parts.

use super::tiles::{EMPTY, ONE_PART_TILES, SIDE, Tile};
use crate::cpu::level::Avx512;
use crate::cpu::simd::{prefetch, widest};
use crate::cpu::view::View;
use crate::cpu::x86::blocks::turn_registers;
use std::arch::x86_64::{__m512i, _mm512_load_si512, _mm512_store_si512};

/// Depth along k of one tile.
pub const K_STEP: usize = 32;

/// Layout of a tile.
#[derive(Clone, Copy, PartialEq)]
pub enum Layout {
    /// Row `i` holds the pairs of lane `i`: the left side.
    LanesAreRows,
    /// Row `p` holds pair `p` of every lane: the right side.
    PairsAreRows,
}

/// One side of a product: lanes (rows of the left side, columns of the right side) of values along
/// k.
#[derive(Clone, Copy)]
pub struct Lanes<'a> {
    pub view: View<'a>,
    pub across_columns: bool,
    pub k_start: usize,
    pub depth: usize,
    pub scale: f32,
    /// A weight for each index along k.
    pub weights: Option<&'a [f32]>,
}

impl Lanes<'_> {
    /// Packs adjacent panels of 32 lanes, the first of which starts at lane `first`, over the whole
    /// depth, padded with zeros past the edge of the matrix. A step has three parts, or one if the
    /// values are bfloat16.
    ///
    /// Memory is always read along its rows: panel by panel if the rows are lanes, otherwise step
    /// by step with all panels in each step.
    pub fn pack_panels(
        &self,
        avx512: Avx512,
        first: usize,
        panels: &mut [Tile],
        (panel_tiles, step_tiles): (usize, usize),
        layout: Layout,
    ) {
        widest(
            #[inline(always)]
            || {
                let (steps, count) = (panel_tiles / step_tiles, panels.len() / panel_tiles);
                let mut space = ([0.0; 512], [EMPTY; 3]);
                for i in 0..steps * count {
                    let (step, panel) = if self.lanes_are_rows() {
                        (i % steps, i / steps)
                    } else {
                        (i / count, i % count)
                    };
                    let tiles =
                        &mut panels[panel * panel_tiles + step * step_tiles..][..step_tiles];
                    let (lane, k) = (first + SIDE * panel, step * K_STEP);
                    if step_tiles == ONE_PART_TILES {
                        self.pack_step_of_one_part(avx512, lane, k, tiles, layout, &mut space);
                    } else {
                        self.pack_step(avx512, lane, k, tiles, layout, &mut space);
                    }
                }
            },
        );
    }

    /// Packs one step of a panel.
    #[inline(always)]
    fn pack_step(
        &self,
        avx512: Avx512,
        first: usize,
        k: usize,
        tiles: &mut [Tile],
        layout: Layout,
        (block, aside): &mut ([f32; 512], [Tile; 3]),
    ) {
        let lanes_are_rows = self.lanes_are_rows();
        for half in 0..2 {
            let parts = [half, 2 + half, 4 + half];
            self.fill(block, first + 16 * half, k);
            if lanes_are_rows == (layout == Layout::LanesAreRows) {
                split(block, lanes_are_rows, tiles, parts);
            } else {
                split(block, lanes_are_rows, aside, [0, 1, 2]);
                for (aside, part) in aside.iter().zip(parts) {
                    turn(avx512, aside, &mut tiles[part]);
                }
            }
        }
    }

    /// Packs one step of a panel of bfloat16 values.
    #[inline(always)]
    fn pack_step_of_one_part(
        &self,
        avx512: Avx512,
        first: usize,
        k: usize,
        tiles: &mut [Tile],
        layout: Layout,
        (block, aside): &mut ([f32; 512], [Tile; 3]),
    ) {
        let lanes_are_rows = self.lanes_are_rows();
        for (half, tile) in tiles.iter_mut().enumerate() {
            self.fill(block, first + 16 * half, k);
            if lanes_are_rows == (layout == Layout::LanesAreRows) {
                upper_halves(block, lanes_are_rows, tile);
            } else {
                upper_halves(block, lanes_are_rows, &mut aside[0]);
                turn(avx512, &aside[0], tile);
            }
        }
    }

    /// Whether the values of a lane are adjacent in memory.
    #[inline(always)]
    fn lanes_are_rows(&self) -> bool {
        let view = &self.view;
        (if self.across_columns { view.row_stride } else { view.column_stride }) == 1
    }

    /// Copies 16 lanes of 32 values in their memory order, scaled: \[lane\]\[k\] if lanes are rows,
    /// \[k\]\[lane\] if not.
    #[inline(always)]
    pub fn fill(&self, block: &mut [f32; 512], first: usize, k: usize) {
        let view = &self.view;
        let (lanes, lane_stride, k_stride) = if self.across_columns {
            (view.columns, view.column_stride, view.row_stride)
        } else {
            (view.rows, view.row_stride, view.column_stride)
        };
        let lanes = lanes.saturating_sub(first).min(16);
        let count = self.depth.saturating_sub(k).min(K_STEP);
        let start = first * lane_stride + (self.k_start + k) * k_stride;
        let lanes_are_rows = self.lanes_are_rows();
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
    }
}

/// Copies whole rows of a block, and prefetches the memory after them, which is needed next.
#[inline(always)]
fn copy_rows<const WIDTH: usize>(block: &mut [f32; 512], from: &[f32], stride: usize) {
    /// Prefetch distance in values: the time of a few blocks.
    const AHEAD: usize = 64;
    for i in 0..512 / WIDTH {
        let row: &[f32; WIDTH] = from[i * stride..].first_chunk().expect("views were checked");
        for line in 0..WIDTH / 16 {
            prefetch(row.as_ptr().wrapping_add(AHEAD + 16 * line));
        }
        block[i * WIDTH..(i + 1) * WIDTH].copy_from_slice(row);
    }
}

/// x = h + m + l, each using only the upper 16 bits of an `f32`.
#[inline(always)]
fn three_parts(x: f32) -> [u32; 3] {
    const UPPER: u32 = 0xffff_0000;
    let h = x.to_bits() & UPPER;
    let rest = x - f32::from_bits(h);
    let m = rest.to_bits() & UPPER;
    let l = (rest - f32::from_bits(m)).to_bits() & UPPER;
    [h, m, l]
}

/// Writes the three parts of a block as tiles, following the rows in memory, which are either lanes
/// or indices along k.
#[inline(always)]
fn split(block: &[f32; 512], lanes_are_rows: bool, tiles: &mut [Tile], parts: [usize; 3]) {
    let (rows, _) = block.as_chunks::<16>();
    for i in 0..16 {
        let (first, second) = if lanes_are_rows { (2 * i, 2 * i + 1) } else { (i, i + 16) };
        for (part, row) in parts.into_iter().zip(pairs(&rows[first], &rows[second])) {
            tiles[part].0[i] = row;
        }
    }
}

/// Writes the upper halves of a block as a tile, as [`split`] does for the first part.
#[inline(always)]
fn upper_halves(block: &[f32; 512], lanes_are_rows: bool, tile: &mut Tile) {
    let (rows, _) = block.as_chunks::<16>();
    for i in 0..16 {
        let (first, second) = if lanes_are_rows { (2 * i, 2 * i + 1) } else { (i, i + 16) };
        let pairs = rows[first].iter().zip(&rows[second]);
        for (out, (first, second)) in tile.0[i].iter_mut().zip(pairs) {
            *out = (first.to_bits() >> 16) | (second.to_bits() & 0xffff_0000);
        }
    }
}

/// The three parts of sixteen pairs. A pair consists of two values that are sixteen apart along k
/// instead of adjacent ones: this needs no shuffling, and the order along k does not matter to a
/// sum as long as both sides agree.
#[inline(always)]
fn pairs(first: &[f32; 16], second: &[f32; 16]) -> [[u32; 16]; 3] {
    let mut out = [[0; 16]; 3];
    for i in 0..16 {
        let (first, second) = (three_parts(first[i]), three_parts(second[i]));
        for part in 0..3 {
            out[part][i] = (first[part] >> 16) | second[part];
        }
    }
    out
}

/// Writes the transposed tile.
#[inline(always)]
#[allow(unsafe_code)]
pub fn turn(_: Avx512, tile: &Tile, out: &mut Tile) {
    // SAFETY: the token proves that the processor supports AVX-512.
    unsafe { turn_in_registers(tile, out) }
}

#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
fn turn_in_registers(tile: &Tile, out: &mut Tile) {
    let mut rows: [__m512i; 16] =
        // SAFETY: every row is 64 bytes, and the tile is 64-byte aligned.
        std::array::from_fn(|i| unsafe { _mm512_load_si512(tile.0[i].as_ptr().cast()) });
    turn_registers(&mut rows);
    for (row, out) in rows.into_iter().zip(&mut out.0) {
        // SAFETY: as above.
        unsafe { _mm512_store_si512(out.as_mut_ptr().cast(), row) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let Some(avx512) = Avx512::get() else { return };
        let tile = Tile(std::array::from_fn(|i| std::array::from_fn(|j| (16 * i + j) as u32)));
        let mut turned = tile;
        turn(avx512, &tile, &mut turned);
        assert!((0..16).all(|i| (0..16).all(|j| turned.0[i][j] == (16 * j + i) as u32)));
    }
}
