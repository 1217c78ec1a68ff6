//! ChaCha20 with AVX-512: registers of sixteen lanes. The compiler vectorizes the portable loops of
//! [`crate::noise::chacha`] across the words, through memory, which is slower.

use crate::cpu::level::Avx512;
use crate::noise::chacha::{CONSTANTS, LANES, Words, double_round};
use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_cmplt_epu32_mask, _mm512_mask_add_epi32, _mm512_rol_epi32,
    _mm512_set1_epi32, _mm512_setr_epi32, _mm512_storeu_si512, _mm512_xor_si512,
};

/// x += y, then z = (z ^ x) rotated left.
#[inline]
#[target_feature(enable = "avx512f")]
fn half_step<const SHIFT: i32>(s: &mut [__m512i; 16], x: usize, y: usize, z: usize) {
    s[x] = _mm512_add_epi32(s[x], s[y]);
    s[z] = _mm512_rol_epi32::<SHIFT>(_mm512_xor_si512(s[z], s[x]));
}

#[inline]
#[target_feature(enable = "avx512f")]
fn quarter(s: &mut [__m512i; 16], a: usize, b: usize, c: usize, d: usize) {
    half_step::<16>(s, a, b, d);
    half_step::<12>(s, c, d, b);
    half_step::<8>(s, a, b, d);
    half_step::<7>(s, c, d, b);
}

pub fn blocks(_: Avx512, key: &[u32; 8], stream: u64, first: u64) -> [Words; 16] {
    #[allow(unsafe_code)]
    // SAFETY: the token proves that the processor supports AVX-512.
    unsafe {
        blocks_in_registers(key, stream, first)
    }
}

#[target_feature(enable = "avx512f")]
fn blocks_in_registers(key: &[u32; 8], stream: u64, first: u64) -> [Words; 16] {
    let all = |word: u32| _mm512_set1_epi32(word as i32);
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let low = _mm512_add_epi32(all(first as u32), lanes);
    // The lower half of a counter has overflowed where it is smaller than the addend.
    let high = all((first >> 32) as u32);
    let high = _mm512_mask_add_epi32(high, _mm512_cmplt_epu32_mask(low, lanes), high, all(1));
    let [c0, c1, c2, c3] = CONSTANTS.map(all);
    let [k0, k1, k2, k3, k4, k5, k6, k7] = key.map(all);
    let (stream_low, stream_high) = (all(stream as u32), all((stream >> 32) as u32));
    let start =
        [c0, c1, c2, c3, k0, k1, k2, k3, k4, k5, k6, k7, low, high, stream_low, stream_high];
    let mut s = start;
    for _ in 0..10 {
        double_round!(&mut s);
    }
    let mut words = [[0; LANES]; 16];
    for ((words, s), start) in words.iter_mut().zip(s).zip(start) {
        #[allow(unsafe_code)]
        // SAFETY: the array holds sixteen words, and the store needs no alignment.
        unsafe {
            _mm512_storeu_si512(words.as_mut_ptr().cast(), _mm512_add_epi32(s, start));
        }
    }
    words
}
