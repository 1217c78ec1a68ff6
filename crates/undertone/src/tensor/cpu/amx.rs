//! Matrix products on AMX tiles, as exact as in `f32`.
//!
//! AMX multiplies bfloat16 numbers, of 8 significant bits, and adds in `f32`, sixteen times as fast as AVX-512 does in `f32`. An
//! `f32` of 24 significant bits is *exactly* the sum of three bfloat16 numbers x = h + m + l, cut from its bits. Of the nine
//! products of two such sums, six are computed: hh, hm, mh, mm, hl and lh. What is left out, ml + lm + ll, is below
//! 2⁻²¹ |x y|, and about 2⁻²⁴ |x y| on average: no more than rounding does to a product in `f32`.
//! (Numbers below 2⁻¹¹⁰ lose their lower parts, since the unit takes subnormal numbers for zero.)
//!
//! A tile is 16 rows of 64 bytes. A left tile holds 16 rows of 32 consecutive k; a right tile holds, for 16 pairs of
//! consecutive k, 16 columns. Four tiles of the output, 32 × 32, are computed at a time.

use super::matmul::{Update, View};
use rayon::prelude::*;
use std::arch::asm;
use std::cell::RefCell;
use std::sync::OnceLock;

/// 16 rows of 16 pairs of bfloat16 numbers.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Tile([u32; 256]);

const EMPTY: Tile = Tile([0; 256]);
/// Numbers along k in one tile.
const K_STEP: usize = 32;
/// Numbers along k that are packed at once, so that panels stay in the cache.
const K_BLOCK: usize = 512;
/// Rows and columns of the output that are computed at a time.
const SIDE: usize = 32;
/// Rows of the output that are one task.
const ROWS: usize = 256;
/// Tiles of one step of a panel: three parts of two tiles.
const STEP_TILES: usize = 6;

/// Whether the machine has the tiles and the system lets us use them.
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| std::is_x86_feature_detected!("avx512bw") && has_tiles() && ask_for_tiles())
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

/// Whether a product is of a kind that the tiles are good for.
pub fn suits(left: &View, right: &View) -> bool {
    let (m, k, n) = (left.rows, left.columns, right.columns);
    let dense = |view: &View| view.row_stride == 1 || view.column_stride == 1;
    m >= 48 && n >= 16 && k >= 16 && m * n * k >= 300_000 && dense(left) && dense(right) && available()
}

thread_local! {
    /// Reused from call to call: a panel of the left side of each thread, and the right side of the calling one.
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
        if packed.len() < panels * panel_tiles {
            packed.resize(panels * panel_tiles, EMPTY);
        }
        let lanes = Lanes { view: right, across_columns: true, k_start, depth, scale: 1.0, weights: None };
        let pack = |(panel, tiles): (usize, &mut [Tile])| {
            lanes.pack_panel(panel * SIDE, tiles, Layout::PairsAreRows)
        };
        let right_tiles = &mut packed[..panels * panel_tiles];
        if parallel {
            right_tiles.par_chunks_mut(panel_tiles).enumerate().for_each(pack);
        } else {
            right_tiles.chunks_mut(panel_tiles).enumerate().for_each(pack);
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

/// A run of rows of the output: packs its part of the left side, then meets every panel of the right one.
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
        if packed.len() < panels * panel_tiles {
            packed.resize(panels * panel_tiles, EMPTY);
        }
        for (panel, tiles) in packed.chunks_mut(panel_tiles).take(panels).enumerate() {
            left.pack_panel(first + panel * SIDE, tiles, Layout::LanesAreRows);
        }
        let _tiles = Configured::new();
        for (j, right) in right.chunks(panel_tiles).enumerate() {
            for (i, left) in packed.chunks(panel_tiles).take(panels).enumerate() {
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

/// Tiles are ready for use on this thread while this lives.
struct Configured;

#[repr(C, align(64))]
struct TileConfiguration([u8; 64]);

impl Configured {
    #[allow(unsafe_code)]
    fn new() -> Self {
        // Palette 1; eight tiles of 16 rows of 64 bytes.
        let mut bytes = [0; 64];
        bytes[0] = 1;
        for tile in 0..8 {
            bytes[16 + 2 * tile] = 64;
            bytes[48 + tile] = 16;
        }
        let configuration = TileConfiguration(bytes);
        // SAFETY: `available` has found that the tiles exist and may be used, and the configuration is 64 valid bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) configuration.0.as_ptr(), options(nostack, readonly)) };
        Self
    }
}

impl Drop for Configured {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: gives back what `new` took.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Four tiles of the output from two panels of as many steps; `keep` adds to what is there.
#[allow(unsafe_code)]
fn four_tiles(left: &[Tile], right: &[Tile], out: &mut [f32], stride: usize, keep: bool) {
    assert_eq!(left.len(), right.len(), "panels of the same depth");
    assert!(out.len() >= (SIDE - 1) * stride + SIDE && stride >= SIDE, "room for four tiles");
    let steps = left.len() / STEP_TILES;
    let (upper, row_bytes) = (out.as_mut_ptr(), 4 * stride);
    // SAFETY: the panels hold `steps` steps of six tiles of 1024 bytes, which the loop reads in order; the output block of 32
    // rows and columns was checked above to lie inside the slice. Tiles are configured while `compute_rows` runs.
    unsafe {
        let lower = upper.add(16 * stride);
        if keep {
            asm!(
                "tileloadd tmm0, [{u} + {s}]", "tileloadd tmm1, [{u} + {s} + 64]",
                "tileloadd tmm2, [{l} + {s}]", "tileloadd tmm3, [{l} + {s} + 64]",
                u = in(reg) upper, l = in(reg) lower, s = in(reg) row_bytes, options(nostack, readonly)
            );
        } else {
            asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
        }
        // A step holds the tiles h0 h1 m0 m1 l0 l1 of each side. Small products come first.
        asm!(
            "2:",
            "tileloadd tmm4, [{a} + {s}]",         // h of the left
            "tileloadd tmm6, [{b} + {s} + 4096]",  // l of the right
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a} + {s} + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm7, [{b} + {s} + 5120]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm6, [{b} + {s} + 2048]",  // m of the right
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm7, [{b} + {s} + 3072]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm4, [{a} + {s} + 2048]",  // m of the left
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm5, [{a} + {s} + 3072]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm6, [{b} + {s}]",         // h of the right
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm7, [{b} + {s} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm4, [{a} + {s} + 4096]",  // l of the left
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm5, [{a} + {s} + 5120]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm4, [{a} + {s}]",         // h of the left again
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm5, [{a} + {s} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a}, 6144",
            "add {b}, 6144",
            "dec {n}",
            "jnz 2b",
            a = inout(reg) left.as_ptr() => _, b = inout(reg) right.as_ptr() => _,
            n = inout(reg) steps => _, s = in(reg) 64_usize, options(nostack, readonly)
        );
        asm!(
            "tilestored [{u} + {s}], tmm0", "tilestored [{u} + {s} + 64], tmm1",
            "tilestored [{l} + {s}], tmm2", "tilestored [{l} + {s} + 64], tmm3",
            u = in(reg) upper, l = in(reg) lower, s = in(reg) row_bytes, options(nostack)
        );
    }
}

/// How a tile is laid out.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// Row `i` holds the pairs of lane `i`: the left side.
    LanesAreRows,
    /// Row `p` holds pair `p` of every lane: the right side.
    PairsAreRows,
}

/// One side of a product: lanes (rows of the left, columns of the right) of numbers along k.
#[derive(Clone, Copy)]
struct Lanes<'a> {
    view: View<'a>,
    across_columns: bool,
    k_start: usize,
    depth: usize,
    scale: f32,
    /// One for each number along k.
    weights: Option<&'a [f32]>,
}

impl Lanes<'_> {
    /// Packs the lanes `first .. first + 32` for all of the depth; what is beyond the matrix is zero.
    fn pack_panel(&self, first: usize, tiles: &mut [Tile], layout: Layout) {
        super::simd::widest(
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
    for i in 0..256 {
        let (even, odd) = (three_parts(block[2 * i]), three_parts(block[2 * i + 1]));
        for part in 0..3 {
            tiles[parts[part]].0[i] = (even[part] >> 16) | odd[part];
        }
    }
}

/// Rows of the block are along k: two rows make sixteen pairs.
#[inline(always)]
fn split_across_k(block: &[f32; 512], tiles: &mut [Tile], parts: [usize; 3]) {
    for pair in 0..16 {
        for lane in 0..16 {
            let (even, odd) =
                (three_parts(block[32 * pair + lane]), three_parts(block[32 * pair + 16 + lane]));
            for part in 0..3 {
                tiles[parts[part]].0[16 * pair + lane] = (even[part] >> 16) | odd[part];
            }
        }
    }
}

#[inline(always)]
fn transpose(tile: &mut Tile) {
    for i in 0..16 {
        for j in i + 1..16 {
            tile.0.swap(16 * i + j, 16 * j + i);
        }
    }
}
