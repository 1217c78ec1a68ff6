//! Blocks of 6 × 16: twelve registers of sums, two for the right side and one for the left.

use super::{
    AHEAD, Before, Block, Kernel, Lanes, NUMBERS_AHEAD, ROWS_AHEAD, block_function, block_functions,
};
use crate::cpu::level::Avx2;
use crate::cpu::x86::prefetch;
use std::arch::x86_64::{
    __m256, __m256i, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_maskload_ps,
    _mm256_maskstore_ps, _mm256_mul_ps, _mm256_permute2f128_ps, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

#[allow(unsafe_code)]
impl Kernel for Avx2 {
    const LANES: usize = 8;
    const HEIGHT: usize = 6;
    const NEAR: [usize; 2] = [96, 128];

    fn pack(self, lanes: &Lanes, panel: &mut [f32], pitch: usize) {
        lanes.check(8);
        assert!(lanes.depth == 0 || (lanes.depth - 1) * pitch + 8 <= panel.len());
        // SAFETY: the token proves that the processor supports AVX2; the accessed memory has been
        // checked.
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
        // SAFETY: the token proves that the processor supports AVX2 and FMA; the caller guarantees
        // the rest.
        unsafe { BLOCKS[height - 1][registers - 1](block) }
    }
}

macro_rules! block {
    ($height:literal, $registers:literal, $rows:tt) => {
        block_function!(
            "avx2,fma",
            8,
            $height,
            $registers,
            $rows,
            _mm256_setzero_ps,
            _mm256_loadu_ps,
            _mm256_set1_ps,
            _mm256_fmadd_ps,
            load_some,
            _mm256_storeu_ps,
            store_some
        )
    };
}

static BLOCKS: [[unsafe fn(&Block); 2]; 6] = block_functions!(
    block,
    1 [0]
    2 [0 1]
    3 [0 1 2]
    4 [0 1 2 3]
    5 [0 1 2 3 4]
    6 [0 1 2 3 4 5]
);

/// Mask of the first `count` of eight lanes: those whose highest bit is set.
#[inline]
#[target_feature(enable = "avx2,fma")]
#[allow(unsafe_code)]
fn first(count: usize) -> __m256i {
    const MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(count <= 8);
    // SAFETY: eight values starting at 8 − count lie within the sixteen.
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - count).cast()) }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
#[allow(unsafe_code)]
unsafe fn load_some(from: *const f32, count: usize) -> __m256 {
    // SAFETY: the caller guarantees that `count` values are readable; masked-off lanes are not
    // read.
    unsafe { _mm256_maskload_ps(from, first(count)) }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
#[allow(unsafe_code)]
unsafe fn store_some(to: *mut f32, count: usize, values: __m256) {
    // SAFETY: the caller guarantees that `count` values are writable; masked-off lanes are not
    // written.
    unsafe { _mm256_maskstore_ps(to, first(count), values) }
}

/// Packs lanes that are adjacent in memory: one register for each k.
///
/// # Safety
/// Everything that the lanes reach must be readable, and the panel must be writable for a full
/// register at each k.
#[target_feature(enable = "avx2,fma")]
#[allow(unsafe_code)]
unsafe fn copy(lanes: &Lanes, panel: *mut f32, pitch: usize) {
    let Lanes { values, count, depth, k_stride, weights, .. } = *lanes;
    let (values, mask) = (values.as_ptr(), first(count));
    for k in 0..depth {
        // SAFETY: guaranteed by the caller.
        unsafe {
            prefetch(values.wrapping_add((k + ROWS_AHEAD) * k_stride));
            let mut x = _mm256_maskload_ps(values.add(k * k_stride), mask);
            if let Some(weights) = weights {
                x = _mm256_mul_ps(x, _mm256_set1_ps(*weights.get_unchecked(k)));
            }
            _mm256_storeu_ps(panel.add(k * pitch), x);
        }
    }
}

/// Packs lanes whose values along k are adjacent in memory: eight lanes at a time are transposed in
/// registers.
///
/// # Safety
/// As for [`copy`].
#[target_feature(enable = "avx2,fma")]
#[allow(unsafe_code)]
unsafe fn turn(lanes: &Lanes, panel: *mut f32, pitch: usize) {
    let Lanes { values, count, depth, lane_stride, weights, .. } = *lanes;
    let values = values.as_ptr();
    // Past the end, the last lane is repeated; its packed values are meaningless.
    let lane = |lane: usize| values.wrapping_add(lane.min(count - 1) * lane_stride);
    for k in (0..depth).step_by(8) {
        let along = (depth - k).min(8);
        let mask = first(along);
        let mut rows = [_mm256_setzero_ps(); 8];
        // SAFETY: the caller guarantees `count` lanes of `along` values starting at k, and `along`
        // weights.
        unsafe {
            if along == 8 {
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = _mm256_loadu_ps(lane(i).add(k));
                    prefetch(lane(i).wrapping_add(k + NUMBERS_AHEAD));
                }
            } else {
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = _mm256_maskload_ps(lane(i).add(k), mask);
                }
            }
            if let Some(weights) = weights {
                let weights = _mm256_maskload_ps(weights.as_ptr().add(k), mask);
                for row in &mut rows {
                    *row = _mm256_mul_ps(*row, weights);
                }
            }
        }
        let turned = turn_registers(rows);
        for (i, &row) in turned.iter().enumerate() {
            if i < along {
                // SAFETY: the caller guarantees room for a register at each k.
                unsafe { _mm256_storeu_ps(panel.add((k + i) * pitch), row) };
            }
        }
    }
}

/// Transposes 8 × 8 values: first pairs of values, then groups of four, then halves of registers.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn turn_registers([a, b, c, d, e, f, g, h]: [__m256; 8]) -> [__m256; 8] {
    let (ab, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    let (cd, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    let (ef, ef_high) = (_mm256_unpacklo_ps(e, f), _mm256_unpackhi_ps(e, f));
    let (gh, gh_high) = (_mm256_unpacklo_ps(g, h), _mm256_unpackhi_ps(g, h));
    const LOW: i32 = 0b01_00_01_00;
    const HIGH: i32 = 0b11_10_11_10;
    let upper = [
        _mm256_shuffle_ps::<LOW>(ab, cd),
        _mm256_shuffle_ps::<HIGH>(ab, cd),
        _mm256_shuffle_ps::<LOW>(ab_high, cd_high),
        _mm256_shuffle_ps::<HIGH>(ab_high, cd_high),
    ];
    let lower = [
        _mm256_shuffle_ps::<LOW>(ef, gh),
        _mm256_shuffle_ps::<HIGH>(ef, gh),
        _mm256_shuffle_ps::<LOW>(ef_high, gh_high),
        _mm256_shuffle_ps::<HIGH>(ef_high, gh_high),
    ];
    [
        _mm256_permute2f128_ps::<0x20>(upper[0], lower[0]),
        _mm256_permute2f128_ps::<0x20>(upper[1], lower[1]),
        _mm256_permute2f128_ps::<0x20>(upper[2], lower[2]),
        _mm256_permute2f128_ps::<0x20>(upper[3], lower[3]),
        _mm256_permute2f128_ps::<0x31>(upper[0], lower[0]),
        _mm256_permute2f128_ps::<0x31>(upper[1], lower[1]),
        _mm256_permute2f128_ps::<0x31>(upper[2], lower[2]),
        _mm256_permute2f128_ps::<0x31>(upper[3], lower[3]),
    ]
}
