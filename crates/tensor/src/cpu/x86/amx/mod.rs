//! Matrix products on AMX tiles, as accurate as in `f32`.
//!
//! AMX multiplies bfloat16 values, which have 8 significant bits, and accumulates in `f32`, sixteen
//! times as fast as AVX-512 does in `f32`. An `f32` with 24 significant bits is *exactly* the sum
//! of three bfloat16 numbers x = h + m + l, cut from its bits. Of the nine products of two such
//! sums, six are computed: hh, hm, mh, mm, hl and lh. The omitted part, ml + lm + ll, is below 2⁻²¹
//! |x y|, and about 2⁻²⁴ |x y| on average: no more than the rounding error of a product in `f32`.
//! (Values below 2⁻¹¹⁰ lose their lower parts, since the unit treats subnormal numbers as zero.)
//!
//! A tile is 16 rows of 64 bytes. A left tile holds 16 rows of 32 consecutive k in pairs; a right
//! tile holds, for the same 16 pairs of k, 16 columns. Four tiles of the output, 32 × 32, are
//! computed at a time.

mod blocks;
mod gram;
mod pack;
mod tiles;

use crate::cpu::level::Amx;
use crate::cpu::parallel;
use crate::cpu::view::{Update, View};
pub use blocks::{BLOCK_SIDE, Block, blocks_suit, for_each_block};
pub use gram::{GRAM_ERROR, add_gram, gram_side};
use pack::{K_STEP, Lanes, Layout};
use std::cell::RefCell;
use tiles::{
    Before, Configured, ONE_PART_TILES, SIDE, STEP_TILES, Tile, four_tiles,
    four_tiles_with_one_part, room,
};

/// Depth along k that is packed at once, so that panels stay in cache.
const K_BLOCK: usize = 512;
/// Output rows per task.
const ROWS: usize = 256;

/// Whether rows or columns are contiguous.
fn dense(view: &View) -> bool {
    view.row_stride == 1 || view.column_stride == 1
}

/// The tile token, if tiles are available and efficient for this product.
pub fn suits(left: &View, right: &View) -> Option<Amx> {
    let (m, k, n) = (left.rows, left.columns, right.columns);
    let suits =
        m >= 48 && n >= 16 && k >= 16 && m * n * k >= 300_000 && dense(left) && dense(right);
    if suits { Amx::get() } else { None }
}

thread_local! {
    /// Buffers reused across calls: a left panel for each thread, and the right side of the calling
    /// thread.
    static LEFT: RefCell<Vec<Tile>> = const { RefCell::new(Vec::new()) };
    static RIGHT: RefCell<Vec<Tile>> = const { RefCell::new(Vec::new()) };
}

/// Number of bfloat16 parts per value of the right side.
#[derive(Clone, Copy, PartialEq)]
pub enum Parts {
    /// `f32` values.
    Three,
    /// bfloat16 values stored as `f32`: only half of the products remain.
    One,
}

impl Parts {
    fn tiles(self) -> usize {
        match self {
            Self::Three => STEP_TILES,
            Self::One => ONE_PART_TILES,
        }
    }
}

/// `out (+)= scale · left · diag(weights) · right`, where `stride` is the distance between rows of
/// `out`.
#[allow(clippy::too_many_arguments)]
pub fn multiply(
    amx: Amx,
    out: &mut [f32],
    stride: usize,
    how: Update,
    scale: f32,
    left: View,
    weights: Option<&[f32]>,
    (right, parts): (View, Parts),
    parallel: bool,
) {
    let (m, k, n) = (left.rows, left.columns, right.columns);
    assert_eq!(k, right.rows, "inner sizes of a product");
    assert!(weights.is_none_or(|weights| weights.len() == k), "one weight for each number along k");
    assert!(m == 0 || (m - 1) * stride + n <= out.len(), "the output is too short for {m} × {n}");
    let panels = n.div_ceil(SIDE);
    let mut packed = RIGHT.with(RefCell::take);
    for k_start in (0..k).step_by(K_BLOCK) {
        let depth = K_BLOCK.min(k - k_start);
        let steps = depth.div_ceil(K_STEP);
        let panel_tiles = steps * parts.tiles();
        let right_tiles = room(&mut packed, panels * panel_tiles);
        let lanes =
            Lanes { view: right, across_columns: true, k_start, depth, scale: 1.0, weights: None };
        let together =
            if parallel { panels.div_ceil(rayon::current_num_threads()).min(8) } else { 8 };
        let pack = |group: usize, tiles: &mut [Tile]| {
            let first = group * together * SIDE;
            let sizes = (panel_tiles, parts.tiles());
            lanes.pack_panels(amx.avx512(), first, tiles, sizes, Layout::PairsAreRows)
        };
        let groups = right_tiles.chunks_mut(together * panel_tiles);
        if parallel {
            parallel::pieces(groups, pack);
        } else {
            groups.enumerate().for_each(|(group, tiles)| pack(group, tiles));
        }
        let right_tiles = &*right_tiles;
        let how = if k_start > 0 { Update::Add } else { how };
        let lanes = Lanes { view: left, across_columns: false, k_start, depth, scale, weights };
        let rows = if parallel {
            ROWS.min(m.div_ceil(rayon::current_num_threads()).next_multiple_of(SIDE))
        } else {
            ROWS
        };
        let task = |i: usize, out: &mut [f32]| {
            let count = rows.min(m - i * rows);
            let columns = (n, right_tiles, steps, parts);
            compute_rows(amx, (out, stride, how), &lanes, i * rows, count, columns);
        };
        let runs = out.chunks_mut(rows * stride).take(m.div_ceil(rows));
        if parallel {
            parallel::pieces(runs, task);
        } else {
            runs.enumerate().for_each(|(i, out)| task(i, out));
        }
    }
    RIGHT.with(|slot| slot.replace(packed));
}

/// Computes a run of rows of the output: packs its part of the left side, then multiplies it with
/// every panel of the right side.
fn compute_rows(
    amx: Amx,
    (out, stride, how): (&mut [f32], usize, Update),
    left: &Lanes,
    first: usize,
    rows: usize,
    (columns, right, steps, parts): (usize, &[Tile], usize, Parts),
) {
    LEFT.with_borrow_mut(|packed| {
        let panels = rows.div_ceil(SIDE);
        let panel_tiles = steps * STEP_TILES;
        let packed = room(packed, panels * panel_tiles);
        let sizes = (panel_tiles, STEP_TILES);
        left.pack_panels(amx.avx512(), first, packed, sizes, Layout::LanesAreRows);
        let tiles = Configured::new(amx);
        let four_tiles: FourTiles = match parts {
            Parts::Three => four_tiles,
            Parts::One => four_tiles_with_one_part,
        };
        for (j, right) in right.chunks(steps * parts.tiles()).enumerate() {
            for (i, left) in packed.chunks(panel_tiles).enumerate() {
                let (row, column) = (i * SIDE, j * SIDE);
                let (height, width) = (SIDE.min(rows - row), SIDE.min(columns - column));
                let target = &mut out[row * stride + column..];
                let mut padded = [0.0; SIDE];
                let before = match how {
                    Update::Overwrite => Before::Nothing,
                    Update::Add => Before::Output,
                    Update::Bias(row) => {
                        padded[..width].copy_from_slice(&row[column..][..width]);
                        Before::Row(&padded)
                    }
                };
                if height == SIDE && width == SIDE {
                    four_tiles(&tiles, left, right, target, stride, before);
                } else {
                    let size = (height, width);
                    at_edge(four_tiles, &tiles, (left, right), (target, stride, before), size);
                }
            }
        }
    });
}

type FourTiles = fn(&Configured, &[Tile], &[Tile], &mut [f32], usize, Before);

/// Computes an output block that is smaller than four tiles in a temporary buffer.
fn at_edge(
    four_tiles: FourTiles,
    tiles: &Configured,
    (left, right): (&[Tile], &[Tile]),
    (out, stride, before): (&mut [f32], usize, Before),
    (height, width): (usize, usize),
) {
    let mut aside = [0.0_f32; SIDE * SIDE];
    if let Before::Output = before {
        for (aside, out) in aside.chunks_mut(SIDE).zip(out.chunks(stride)).take(height) {
            aside[..width].copy_from_slice(&out[..width]);
        }
    }
    four_tiles(tiles, left, right, &mut aside, SIDE, before);
    for (aside, out) in aside.chunks(SIDE).zip(out.chunks_mut(stride)).take(height) {
        out[..width].copy_from_slice(&aside[..width]);
    }
}
