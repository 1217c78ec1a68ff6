//! The tile registers: their configuration, and kernels for four output tiles.

use crate::cpu::level::Amx;
use std::arch::asm;
use std::marker::PhantomData;

/// 16 rows of 16 pairs of bfloat16 numbers.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Tile(pub [[u32; 16]; 16]);

pub const EMPTY: Tile = Tile([[0; 16]; 16]);
/// Rows and columns of the output computed at a time.
pub const SIDE: usize = 32;
/// Tiles per step of a panel: three parts of two tiles.
pub const STEP_TILES: usize = 6;
/// The same number with two parts.
pub const TWO_PART_TILES: usize = 4;
/// The same number with one part, for values that are already bfloat16.
pub const ONE_PART_TILES: usize = 2;

/// The first `count` tiles of a buffer, which grows if needed.
pub fn room(tiles: &mut Vec<Tile>, count: usize) -> &mut [Tile] {
    if tiles.len() < count {
        tiles.resize(count, EMPTY);
    }
    &mut tiles[..count]
}

/// Tiles are configured on this thread while this value lives; it cannot move to another thread.
pub struct Configured(PhantomData<*const ()>);

#[repr(C, align(64))]
struct TileConfiguration([u8; 64]);

impl Configured {
    #[allow(unsafe_code)]
    pub fn new(_: Amx) -> Self {
        // Palette 1; eight tiles of 16 rows of 64 bytes.
        let mut bytes = [0; 64];
        bytes[0] = 1;
        for tile in 0..8 {
            bytes[16 + 2 * tile] = 64;
            bytes[48 + tile] = 16;
        }
        let configuration = TileConfiguration(bytes);
        // SAFETY: the token proves that the tiles exist and may be used, and the configuration is
        // 64 valid bytes.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) configuration.0.as_ptr(), options(nostack, readonly))
        };
        Self(PhantomData)
    }
}

impl Drop for Configured {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: releases the tiles configured by `new`.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// The initial value of four output tiles.
#[derive(Clone, Copy)]
pub enum Before<'a> {
    Nothing,
    /// The current contents of the output.
    Output,
    /// The same row in every row.
    Row(&'a [f32; SIDE]),
}

/// The location of four output tiles, which are held in registers 0 to 3.
struct Target {
    upper: *mut f32,
    lower: *mut f32,
    row_bytes: usize,
}

#[allow(unsafe_code)]
impl Target {
    fn new(out: &mut [f32], stride: usize) -> Self {
        assert!(out.len() >= (SIDE - 1) * stride + SIDE && stride >= SIDE, "room for four tiles");
        let upper = out.as_mut_ptr();
        // SAFETY: row 16 starts inside the slice.
        Self { upper, lower: unsafe { upper.add(16 * stride) }, row_bytes: 4 * stride }
    }

    /// # Safety
    /// Tiles must be configured and the slice must still be valid.
    #[inline(always)]
    unsafe fn load(&self) {
        // SAFETY: all 32 rows of 32 values lie within the slice.
        unsafe {
            asm!(
                "tileloadd tmm0, [{u} + {s}]", "tileloadd tmm1, [{u} + {s} + 64]",
                "tileloadd tmm2, [{l} + {s}]", "tileloadd tmm3, [{l} + {s} + 64]",
                u = in(reg) self.upper, l = in(reg) self.lower, s = in(reg) self.row_bytes,
                options(nostack, readonly)
            );
        }
    }

    /// Initializes the tiles to the value that the sums are added to.
    ///
    /// # Safety
    /// As for [`Self::load`].
    #[inline(always)]
    unsafe fn begin(&self, before: Before) {
        match before {
            // SAFETY: guaranteed by the caller.
            Before::Output => unsafe { self.load() },
            // SAFETY: tiles are configured.
            Before::Nothing => unsafe {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    options(nostack, nomem)
                );
            },
            // SAFETY: the row holds the values of both tiles side by side, and is read again for
            // every row of a tile.
            Before::Row(row) => unsafe {
                asm!(
                    "tileloadd tmm0, [{r} + {s}]", "tileloadd tmm1, [{r} + {s} + 64]",
                    "tileloadd tmm2, [{r} + {s}]", "tileloadd tmm3, [{r} + {s} + 64]",
                    r = in(reg) row.as_ptr(), s = in(reg) 0_usize, options(nostack, readonly)
                );
            },
        }
    }

    /// # Safety
    /// As for [`Self::load`].
    #[inline(always)]
    unsafe fn store(&self) {
        // SAFETY: all 32 rows of 32 values lie within the slice.
        unsafe {
            asm!(
                "tilestored [{u} + {s}], tmm0", "tilestored [{u} + {s} + 64], tmm1",
                "tilestored [{l} + {s}], tmm2", "tilestored [{l} + {s} + 64], tmm3",
                u = in(reg) self.upper, l = in(reg) self.lower, s = in(reg) self.row_bytes,
                options(nostack)
            );
        }
    }
}

/// `tmm[out] += tmm[left] · tmm[right]`, while prefetching four cache lines of each side at a given
/// distance in bytes.
///
/// Loading a tile waits for all of its cache lines, so they should already be in the L1 cache.
/// Prefetching saves 5 % of the time if this thread has the unit to itself, and a third if another
/// tenant of the core uses it too.
macro_rules! product {
    ($out:literal, $left:literal, $right:literal, ahead $first:literal + 256 * $n:literal) => {
        concat!(
            "tdpbf16ps tmm",
            $out,
            ", tmm",
            $left,
            ", tmm",
            $right,
            "\n",
            lines!("a", $first, $n),
            lines!("b", $first, $n)
        )
    };
}

macro_rules! lines {
    ($side:literal, $first:literal, $n:literal) => {
        concat!(
            cache_line!($side, $first, $n, 0),
            cache_line!($side, $first, $n, 64),
            cache_line!($side, $first, $n, 128),
            cache_line!($side, $first, $n, 192)
        )
    };
}

macro_rules! cache_line {
    ($side:literal, $first:literal, $n:literal, $more:literal) => {
        concat!("prefetcht0 [{", $side, "} + ", $first, " + 256 * ", $n, " + ", $more, "]\n")
    };
}

/// Computes four output tiles from two panels with the same number of steps.
#[allow(unsafe_code)]
pub fn four_tiles(
    _: &Configured,
    left: &[Tile],
    right: &[Tile],
    out: &mut [f32],
    stride: usize,
    before: Before,
) {
    assert_eq!(left.len(), right.len(), "panels of the same depth");
    assert!(!left.is_empty() && left.len().is_multiple_of(STEP_TILES), "whole steps");
    let steps = left.len() / STEP_TILES;
    let target = Target::new(out, stride);
    // SAFETY: the panels hold `steps` steps of six tiles of 1024 bytes, which the loop reads in
    // order, and the target has been checked. Tiles are configured.
    unsafe {
        target.begin(before);
        // A step holds the tiles h0 h1 m0 m1 l0 l1 of each side. Small products come first.
        asm!(
            "2:",
            "tileloadd tmm4, [{a} + {s}]",         // h of the left
            "tileloadd tmm6, [{b} + {s} + 4096]",  // l of the right
            product!("0", "4", "6", ahead 6144 + 256 * 0),
            "tileloadd tmm5, [{a} + {s} + 1024]",
            product!("2", "5", "6", ahead 6144 + 256 * 1),
            "tileloadd tmm7, [{b} + {s} + 5120]",
            product!("1", "4", "7", ahead 6144 + 256 * 2),
            "tileloadd tmm6, [{b} + {s} + 2048]",  // m of the right
            product!("3", "5", "7", ahead 6144 + 256 * 3),
            "tileloadd tmm7, [{b} + {s} + 3072]",
            product!("0", "4", "6", ahead 6144 + 256 * 4),
            product!("2", "5", "6", ahead 6144 + 256 * 5),
            product!("1", "4", "7", ahead 6144 + 256 * 6),
            "tileloadd tmm4, [{a} + {s} + 2048]",  // m of the left
            product!("3", "5", "7", ahead 6144 + 256 * 7),
            "tileloadd tmm5, [{a} + {s} + 3072]",
            product!("0", "4", "6", ahead 6144 + 256 * 8),
            product!("2", "5", "6", ahead 6144 + 256 * 9),
            "tileloadd tmm6, [{b} + {s}]",         // h of the right
            product!("1", "4", "7", ahead 6144 + 256 * 10),
            product!("3", "5", "7", ahead 6144 + 256 * 11),
            "tileloadd tmm7, [{b} + {s} + 1024]",
            product!("0", "4", "6", ahead 6144 + 256 * 12),
            product!("2", "5", "6", ahead 6144 + 256 * 13),
            product!("1", "4", "7", ahead 6144 + 256 * 14),
            "tileloadd tmm4, [{a} + {s} + 4096]",  // l of the left
            product!("3", "5", "7", ahead 6144 + 256 * 15),
            "tileloadd tmm5, [{a} + {s} + 5120]",
            product!("0", "4", "6", ahead 6144 + 256 * 16),
            product!("2", "5", "6", ahead 6144 + 256 * 17),
            product!("1", "4", "7", ahead 6144 + 256 * 18),
            "tileloadd tmm4, [{a} + {s}]",         // h of the left again
            product!("3", "5", "7", ahead 6144 + 256 * 19),
            "tileloadd tmm5, [{a} + {s} + 1024]",
            product!("0", "4", "6", ahead 6144 + 256 * 20),
            product!("2", "5", "6", ahead 6144 + 256 * 21),
            product!("1", "4", "7", ahead 6144 + 256 * 22),
            product!("3", "5", "7", ahead 6144 + 256 * 23),
            "add {a}, 6144",
            "add {b}, 6144",
            "dec {n}",
            "jnz 2b",
            a = inout(reg) left.as_ptr() => _, b = inout(reg) right.as_ptr() => _,
            n = inout(reg) steps => _, s = in(reg) 64_usize, options(nostack, readonly)
        );
        target.store();
    }
}

/// `tmm[out] += tmm[left] · tmm[right]`, while prefetching eight cache lines of the left side and,
/// for the first eight products, four of the right side, one step ahead.
macro_rules! product_with_one_part {
    (
        $out:literal, $left:literal, $right:literal,
        ahead $n:literal, $m:literal $(, right $r:literal)?
    ) => {
        concat!(
            "tdpbf16ps tmm",
            $out,
            ", tmm",
            $left,
            ", tmm",
            $right,
            "\n",
            lines!("a", 6144, $n),
            lines!("a", 6144, $m)
            $(, lines!("b", 2048, $r))?
        )
    };
}

/// [`four_tiles`] for a right side of bfloat16 values with one part: hh', mh' and lh' are the whole
/// product.
#[allow(unsafe_code)]
pub fn four_tiles_with_one_part(
    _: &Configured,
    left: &[Tile],
    right: &[Tile],
    out: &mut [f32],
    stride: usize,
    before: Before,
) {
    assert!(!left.is_empty() && left.len().is_multiple_of(STEP_TILES), "whole steps");
    let steps = left.len() / STEP_TILES;
    assert_eq!(right.len(), steps * ONE_PART_TILES, "panels of the same depth");
    let target = Target::new(out, stride);
    // SAFETY: the panels hold `steps` steps of six and of two tiles of 1024 bytes, which the loop
    // reads in order, and the target has been checked. Tiles are configured.
    unsafe {
        target.begin(before);
        asm!(
            "2:",
            "tileloadd tmm6, [{b} + {s}]",
            "tileloadd tmm4, [{a} + {s} + 4096]",  // l of the left
            product_with_one_part!("0", "4", "6", ahead 0, 1, right 0),
            "tileloadd tmm7, [{b} + {s} + 1024]",
            product_with_one_part!("1", "4", "7", ahead 2, 3, right 1),
            "tileloadd tmm5, [{a} + {s} + 5120]",
            product_with_one_part!("2", "5", "6", ahead 4, 5, right 2),
            product_with_one_part!("3", "5", "7", ahead 6, 7, right 3),
            "tileloadd tmm4, [{a} + {s} + 2048]",  // m of the left
            product_with_one_part!("0", "4", "6", ahead 8, 9, right 4),
            product_with_one_part!("1", "4", "7", ahead 10, 11, right 5),
            "tileloadd tmm5, [{a} + {s} + 3072]",
            product_with_one_part!("2", "5", "6", ahead 12, 13, right 6),
            product_with_one_part!("3", "5", "7", ahead 14, 15, right 7),
            "tileloadd tmm4, [{a} + {s}]",         // h of the left
            product_with_one_part!("0", "4", "6", ahead 16, 17),
            product_with_one_part!("1", "4", "7", ahead 18, 19),
            "tileloadd tmm5, [{a} + {s} + 1024]",
            product_with_one_part!("2", "5", "6", ahead 20, 21),
            product_with_one_part!("3", "5", "7", ahead 22, 23),
            "add {a}, 6144",
            "add {b}, 2048",
            "dec {n}",
            "jnz 2b",
            a = inout(reg) left.as_ptr() => _, b = inout(reg) right.as_ptr() => _,
            n = inout(reg) steps => _, s = in(reg) 64_usize, options(nostack, readonly)
        );
        target.store();
    }
}

/// Adds four output tiles from two panels with the same number of steps of two parts: hm', mh' and
/// hh'.
#[allow(unsafe_code)]
pub fn four_tiles_of_two_parts(
    _: &Configured,
    left: &[Tile],
    right: &[Tile],
    out: &mut [f32],
    stride: usize,
) {
    assert_eq!(left.len(), right.len(), "panels of the same depth");
    assert!(!left.is_empty() && left.len().is_multiple_of(TWO_PART_TILES), "whole steps");
    let steps = left.len() / TWO_PART_TILES;
    let target = Target::new(out, stride);
    // SAFETY: the panels hold `steps` steps of four tiles of 1024 bytes, which the loop reads in
    // order, and the target has been checked. Tiles are configured.
    unsafe {
        target.load();
        // A step holds the tiles h0 h1 m0 m1 of each side.
        asm!(
            "2:",
            "tileloadd tmm4, [{a} + {s}]",         // h of the left
            "tileloadd tmm6, [{b} + {s} + 2048]",  // m of the right
            product!("0", "4", "6", ahead 4096 + 256 * 0),
            "tileloadd tmm5, [{a} + {s} + 1024]",
            product!("2", "5", "6", ahead 4096 + 256 * 1),
            "tileloadd tmm7, [{b} + {s} + 3072]",
            product!("1", "4", "7", ahead 4096 + 256 * 2),
            "tileloadd tmm6, [{b} + {s}]",         // h of the right
            product!("3", "5", "7", ahead 4096 + 256 * 3),
            "tileloadd tmm7, [{b} + {s} + 1024]",
            product!("0", "4", "6", ahead 4096 + 256 * 4),
            product!("2", "5", "6", ahead 4096 + 256 * 5),
            product!("1", "4", "7", ahead 4096 + 256 * 6),
            "tileloadd tmm4, [{a} + {s} + 2048]",  // m of the left
            product!("3", "5", "7", ahead 4096 + 256 * 7),
            "tileloadd tmm5, [{a} + {s} + 3072]",
            product!("0", "4", "6", ahead 4096 + 256 * 8),
            product!("2", "5", "6", ahead 4096 + 256 * 9),
            product!("1", "4", "7", ahead 4096 + 256 * 10),
            product!("3", "5", "7", ahead 4096 + 256 * 11),
            "add {a}, 4096",
            "add {b}, 4096",
            "dec {n}",
            "jnz 2b",
            a = inout(reg) left.as_ptr() => _, b = inout(reg) right.as_ptr() => _,
            n = inout(reg) steps => _, s = in(reg) 64_usize, options(nostack, readonly)
        );
        target.store();
    }
}
