//! Matrix products on AMX tiles, as exact as in `f32`.
//!
//! AMX multiplies bfloat16 numbers, of 8 significant bits, and adds in `f32`, sixteen times as fast
//! as AVX-512 does in `f32`. An `f32` of 24 significant bits is *exactly* the sum of three bfloat16
//! numbers x = h + m + l, cut from its bits. Of the nine products of two such sums, six are
//! computed: hh, hm, mh, mm, hl and lh. What is left out, ml + lm + ll, is below 2⁻²¹ |x y|, and
//! about 2⁻²⁴ |x y| on average: no more than rounding does to a product in `f32`. (Numbers below
//! 2⁻¹¹⁰ lose their lower parts, since the unit takes subnormal numbers for zero.)
//!
//! A tile is 16 rows of 64 bytes. A left tile holds 16 rows of 32 consecutive k in pairs; a right
//! tile holds, for the same 16 pairs of k, 16 columns. Four tiles of the output, 32 × 32, are
//! computed at a time.

mod blocks;
mod gram;
mod pack;
mod tiles;

use super::matmul::{Update, View};
pub use blocks::{BLOCK_SIDE, Block, blocks_suit, for_each_block};
pub use gram::{GRAM_ERROR, add_gram, gram_side};
use pack::{K_STEP, Lanes, Layout};
use rayon::prelude::*;
use std::arch::asm;
use std::cell::RefCell;
use std::sync::OnceLock;
use tiles::{Configured, SIDE, STEP_TILES, Tile, four_tiles, room};

/// Numbers along k that are packed at once, so that panels stay in the cache.
const K_BLOCK: usize = 512;
/// Rows of the output that are one task.
const ROWS: usize = 256;

/// Whether the machine has the tiles and the system lets us use them.
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE
        .get_or_init(|| std::is_x86_feature_detected!("avx512bw") && has_tiles() && ask_for_tiles())
}

fn has_tiles() -> bool {
    let leaf = std::arch::x86_64::__cpuid_count(7, 0);
    // EDX: bit 22 bfloat16 products, bit 24 tiles.
    leaf.edx & (1 << 22) != 0 && leaf.edx & (1 << 24) != 0
}

/// Asks the system for the tile registers, which a process has to do once.
#[allow(unsafe_code)]
fn ask_for_tiles() -> bool {
    let answer: i64;
    // SAFETY: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) reads and writes no memory of ours.
    unsafe {
        asm!("syscall", inlateout("rax") 158_i64 => answer, in("rdi") 0x1023, in("rsi") 18,
             out("rcx") _, out("r11") _, options(nostack));
    }
    answer == 0
}

/// Whether rows or columns lie end to end.
fn dense(view: &View) -> bool {
    view.row_stride == 1 || view.column_stride == 1
}

/// Whether a product is of a kind that the tiles are good for.
pub fn suits(left: &View, right: &View) -> bool {
    let (m, k, n) = (left.rows, left.columns, right.columns);
    m >= 48
        && n >= 16
        && k >= 16
        && m * n * k >= 300_000
        && dense(left)
        && dense(right)
        && available()
}

thread_local! {
    /// Reused from call to call: a panel of the left side of each thread, and the right side of the
    /// calling one.
    static LEFT: RefCell<Vec<Tile>> = const { RefCell::new(Vec::new()) };
    static RIGHT: RefCell<Vec<Tile>> = const { RefCell::new(Vec::new()) };
}

/// `out (+)= scale · left · diag(weights) · right`; sizes were checked by the caller.
#[allow(clippy::too_many_arguments)]
pub fn multiply(
    out: &mut [f32],
    stride: usize,
    how: Update,
    scale: f32,
    left: View,
    weights: Option<&[f32]>,
    right: View,
    parallel: bool,
) {
    let (m, k, n) = (left.rows, left.columns, right.columns);
    let panels = n.div_ceil(SIDE);
    let mut packed = RIGHT.with(RefCell::take);
    for k_start in (0..k).step_by(K_BLOCK) {
        let depth = K_BLOCK.min(k - k_start);
        let steps = depth.div_ceil(K_STEP);
        let panel_tiles = steps * STEP_TILES;
        let right_tiles = room(&mut packed, panels * panel_tiles);
        let lanes =
            Lanes { view: right, across_columns: true, k_start, depth, scale: 1.0, weights: None };
        let together =
            if parallel { panels.div_ceil(rayon::current_num_threads()).min(8) } else { 8 };
        let pack = |(group, tiles): (usize, &mut [Tile])| {
            lanes.pack_panels(group * together * SIDE, tiles, panel_tiles, Layout::PairsAreRows)
        };
        if parallel {
            right_tiles.par_chunks_mut(together * panel_tiles).enumerate().for_each(pack);
        } else {
            right_tiles.chunks_mut(together * panel_tiles).enumerate().for_each(pack);
        }
        let right_tiles = &*right_tiles;
        let keep = how == Update::Add || k_start > 0;
        let lanes = Lanes { view: left, across_columns: false, k_start, depth, scale, weights };
        let rows = if parallel {
            ROWS.min(m.div_ceil(rayon::current_num_threads()).next_multiple_of(SIDE))
        } else {
            ROWS
        };
        let task = |(i, out): (usize, &mut [f32])| {
            let count = rows.min(m - i * rows);
            compute_rows(out, stride, keep, &lanes, i * rows, count, n, right_tiles, panel_tiles);
        };
        if parallel {
            out.par_chunks_mut(rows * stride).take(m.div_ceil(rows)).enumerate().for_each(task);
        } else {
            out.chunks_mut(rows * stride).take(m.div_ceil(rows)).enumerate().for_each(task);
        }
    }
    RIGHT.with(|slot| slot.replace(packed));
}

/// A run of rows of the output: packs its part of the left side, then meets every panel of the
/// right one.
#[allow(clippy::too_many_arguments)]
fn compute_rows(
    out: &mut [f32],
    stride: usize,
    keep: bool,
    left: &Lanes,
    first: usize,
    rows: usize,
    columns: usize,
    right: &[Tile],
    panel_tiles: usize,
) {
    LEFT.with_borrow_mut(|packed| {
        let panels = rows.div_ceil(SIDE);
        let packed = room(packed, panels * panel_tiles);
        left.pack_panels(first, packed, panel_tiles, Layout::LanesAreRows);
        let _tiles = Configured::new();
        for (j, right) in right.chunks(panel_tiles).enumerate() {
            for (i, left) in packed.chunks(panel_tiles).enumerate() {
                let (row, column) = (i * SIDE, j * SIDE);
                let (height, width) = (SIDE.min(rows - row), SIDE.min(columns - column));
                let target = &mut out[row * stride + column..];
                if height == SIDE && width == SIDE {
                    four_tiles(left, right, target, stride, keep);
                } else {
                    four_tiles_at_edge(left, right, target, stride, keep, height, width);
                }
            }
        }
    });
}

/// An output block that is smaller than four tiles is computed aside.
fn four_tiles_at_edge(
    left: &[Tile],
    right: &[Tile],
    out: &mut [f32],
    stride: usize,
    keep: bool,
    height: usize,
    width: usize,
) {
    let mut aside = [0.0_f32; SIDE * SIDE];
    if keep {
        for (aside, out) in aside.chunks_mut(SIDE).zip(out.chunks(stride)).take(height) {
            aside[..width].copy_from_slice(&out[..width]);
        }
    }
    four_tiles(left, right, &mut aside, SIDE, keep);
    for (aside, out) in aside.chunks(SIDE).zip(out.chunks_mut(stride)).take(height) {
        out[..width].copy_from_slice(&aside[..width]);
    }
}
