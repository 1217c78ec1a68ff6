//! Blocks of 14 × 32: 28 registers of sums, two for the right side and one for the left.

use super::{
    AHEAD, Before, Block, Kernel, Lanes, NUMBERS_AHEAD, ROWS_AHEAD, block_function, block_functions,
};
use crate::cpu::level::Avx512;
use crate::cpu::x86::prefetch;
use std::arch::x86_64::{
    __m512, __m512i, __mmask16, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_fmadd_ps,
    _mm512_load_si512, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps,
    _mm512_mul_ps, _mm512_permutex2var_epi32, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_setzero_si512, _mm512_storeu_ps,
};

#[allow(unsafe_code)]
impl Kernel for Avx512 {
    const LANES: usize = 16;
    const HEIGHT: usize = 14;
    const NEAR: [usize; 2] = [168, 256];

    fn pack(self, lanes: &Lanes, panel: &mut [f32], pitch: usize) {
        lanes.check(16);
        assert!(lanes.depth == 0 || (lanes.depth - 1) * pitch + 16 <= panel.len());
        // SAFETY: the token proves that the processor supports AVX-512; the accessed memory has
        // been checked.
        unsafe {
            if lanes.lane_stride == 1 {
                copy(lanes, panel.as_mut_ptr(), pitch);
            } else {
                turn(lanes, panel.as_mut_ptr(), pitch);
            }
        }
    }

    #[inline]
    unsafe fn block(self, height: usize, registers: usize, block: &Block) {
        // SAFETY: the token proves that the processor supports AVX-512; the caller guarantees the
        // rest.
        unsafe { BLOCKS[height - 1][registers - 1](block) }
    }
}

macro_rules! block {
    ($height:literal, $registers:literal, $rows:tt) => {
        block_function!(
            "avx512f",
            16,
            $height,
            $registers,
            $rows,
            _mm512_setzero_ps,
            _mm512_loadu_ps,
            _mm512_set1_ps,
            _mm512_fmadd_ps,
            load_some,
            _mm512_storeu_ps,
            store_some
        )
    };
}

static BLOCKS: [[unsafe fn(&Block); 2]; 14] = block_functions!(
    block,
    1 [0]
    2 [0 1]
    3 [0 1 2]
    4 [0 1 2 3]
    5 [0 1 2 3 4]
    6 [0 1 2 3 4 5]
    7 [0 1 2 3 4 5 6]
    8 [0 1 2 3 4 5 6 7]
    9 [0 1 2 3 4 5 6 7 8]
    10 [0 1 2 3 4 5 6 7 8 9]
    11 [0 1 2 3 4 5 6 7 8 9 10]
    12 [0 1 2 3 4 5 6 7 8 9 10 11]
    13 [0 1 2 3 4 5 6 7 8 9 10 11 12]
    14 [0 1 2 3 4 5 6 7 8 9 10 11 12 13]
);

/// Mask of the first `count` of sixteen lanes.
#[inline]
fn first(count: usize) -> __mmask16 {
    (0xffff_u32 >> (16 - count)) as u16
}

#[inline]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn load_some(from: *const f32, count: usize) -> __m512 {
    // SAFETY: the caller guarantees that `count` values are readable; masked-off lanes are not
    // read.
    unsafe { _mm512_maskz_loadu_ps(first(count), from) }
}

#[inline]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn store_some(to: *mut f32, count: usize, values: __m512) {
    // SAFETY: the caller guarantees that `count` values are writable; masked-off lanes are not
    // written.
    unsafe { _mm512_mask_storeu_ps(to, first(count), values) }
}

/// Packs lanes that are adjacent in memory: one register for each k.
///
/// # Safety
/// Everything that the lanes reach must be readable, and the panel must be writable for a full
/// register at each k.
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn copy(lanes: &Lanes, panel: *mut f32, pitch: usize) {
    let Lanes { values, count, depth, k_stride, weights, .. } = *lanes;
    let values = values.as_ptr();
    for k in 0..depth {
        // SAFETY: guaranteed by the caller.
        unsafe {
            prefetch(values.wrapping_add((k + ROWS_AHEAD) * k_stride));
            let mut x = load_some(values.add(k * k_stride), count);
            if let Some(weights) = weights {
                x = _mm512_mul_ps(x, _mm512_set1_ps(*weights.get_unchecked(k)));
            }
            _mm512_storeu_ps(panel.add(k * pitch), x);
        }
    }
}

/// Packs lanes whose values along k are adjacent in memory: sixteen lanes at a time are transposed
/// in registers.
///
/// # Safety
/// As for [`copy`].
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
unsafe fn turn(lanes: &Lanes, panel: *mut f32, pitch: usize) {
    let Lanes { values, count, depth, lane_stride, weights, .. } = *lanes;
    let values = values.as_ptr();
    // Past the end, the last lane is repeated; its packed values are meaningless.
    let lane = |lane: usize| values.wrapping_add(lane.min(count - 1) * lane_stride);
    for k in (0..depth).step_by(16) {
        let along = (depth - k).min(16);
        let mut rows = [_mm512_setzero_si512(); 16];
        // SAFETY: the caller guarantees `count` lanes of `along` values starting at k, and `along`
        // weights.
        unsafe {
            if along == 16 {
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = _mm512_castps_si512(_mm512_loadu_ps(lane(i).add(k)));
                    prefetch(lane(i).wrapping_add(k + NUMBERS_AHEAD));
                }
            } else {
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = _mm512_castps_si512(load_some(lane(i).add(k), along));
                }
            }
            if let Some(weights) = weights {
                let weights = load_some(weights.as_ptr().add(k), along);
                for row in &mut rows {
                    *row = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(*row), weights));
                }
            }
        }
        turn_registers(&mut rows);
        for (i, &row) in rows.iter().enumerate() {
            if i < along {
                // SAFETY: the caller guarantees room for a register at each k.
                unsafe {
                    _mm512_storeu_ps(panel.add((k + i) * pitch), _mm512_castsi512_ps(row));
                }
            }
        }
    }
}

/// Transposes 16 × 16 values: swaps blocks of 8 × 8, then blocks of 4, 2 and 1 inside them, each
/// with two shuffles of whole rows.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn turn_registers(rows: &mut [__m512i; 16]) {
    exchange::<8>(rows);
    exchange::<4>(rows);
    exchange::<2>(rows);
    exchange::<1>(rows);
}

#[inline]
#[target_feature(enable = "avx512f")]
#[allow(unsafe_code)]
fn exchange<const SIZE: usize>(rows: &mut [__m512i; 16]) {
    /// The source lane of each result lane: 0 to 15 in the first row, 16 to 31 in the second.
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
    // SAFETY: both are 64 bytes and 64-byte aligned.
    let (upper, lower) = unsafe {
        (_mm512_load_si512(upper.0.as_ptr().cast()), _mm512_load_si512(lower.0.as_ptr().cast()))
    };
    for i in 0..16 {
        if i & SIZE == 0 {
            let (left, right) = (rows[i], rows[i + SIZE]);
            rows[i] = _mm512_permutex2var_epi32(left, upper, right);
            rows[i + SIZE] = _mm512_permutex2var_epi32(left, lower, right);
        }
    }
}
