//! ChaCha20, sixteen blocks at a time: lane l of every register computes block l of the sixteen.
//!
//! The output matches `rand_chacha` (64-bit counter and 64-bit stream number), which the tests
//! compare against; computing the blocks side by side is several times faster on machines with wide
//! registers.

/// Number of blocks computed together.
pub const LANES: usize = 16;

/// One word from each block.
pub(crate) type Words = [u32; LANES];

/// The first four words of every block: "expand 32-byte k".
pub(crate) const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Columns, then diagonals. This is a macro so that every index is a constant and the words can
/// stay in registers.
macro_rules! double_round {
    ($s:expr) => {
        quarter($s, 0, 4, 8, 12);
        quarter($s, 1, 5, 9, 13);
        quarter($s, 2, 6, 10, 14);
        quarter($s, 3, 7, 11, 15);
        quarter($s, 0, 5, 10, 15);
        quarter($s, 1, 6, 11, 12);
        quarter($s, 2, 7, 8, 13);
        quarter($s, 3, 4, 9, 14);
    };
}
#[cfg(target_arch = "x86_64")]
pub(crate) use double_round;

/// Sixteen blocks starting at block `first`; word w of block `first + l` is element `[w][l]` of the
/// result.
#[inline(always)]
pub fn blocks(key: &[u32; 8], stream: u64, first: u64) -> [Words; 16] {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = crate::Avx512::get() {
        return crate::cpu::x86::chacha::blocks(avx512, key, stream, first);
    }
    plain::blocks(key, stream, first)
}

/// Portable code: loops over lanes.
mod plain {
    // Index loops over fixed-size arrays compile to single wide instructions; iterators do not.
    #![allow(clippy::needless_range_loop)]

    use super::{CONSTANTS, LANES, Words};

    /// x += y, then z = (z ^ x) rotated left. Plain loops, so that each compiles to one instruction
    /// on a wide register.
    #[inline(always)]
    fn half_step(s: &mut [Words; 16], x: usize, y: usize, z: usize, shift: u32) {
        for l in 0..LANES {
            s[x][l] = s[x][l].wrapping_add(s[y][l]);
        }
        for l in 0..LANES {
            s[z][l] = (s[z][l] ^ s[x][l]).rotate_left(shift);
        }
    }

    #[inline(always)]
    fn quarter(s: &mut [Words; 16], a: usize, b: usize, c: usize, d: usize) {
        half_step(s, a, b, d, 16);
        half_step(s, c, d, b, 12);
        half_step(s, a, b, d, 8);
        half_step(s, c, d, b, 7);
    }

    #[inline(always)]
    pub fn blocks(key: &[u32; 8], stream: u64, first: u64) -> [Words; 16] {
        let mut start = [[0; LANES]; 16];
        for (word, constant) in start.iter_mut().zip(CONSTANTS) {
            *word = [constant; LANES];
        }
        for (word, key) in start[4..12].iter_mut().zip(key) {
            *word = [*key; LANES];
        }
        for l in 0..LANES {
            let counter = first.wrapping_add(l as u64);
            start[12][l] = counter as u32;
            start[13][l] = (counter >> 32) as u32;
        }
        start[14] = [stream as u32; LANES];
        start[15] = [(stream >> 32) as u32; LANES];
        let mut s = start;
        for _ in 0..10 {
            double_round!(&mut s);
        }
        for (words, start) in s.iter_mut().zip(&start) {
            for l in 0..LANES {
                words[l] = words[l].wrapping_add(start[l]);
            }
        }
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuLevel;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    #[test]
    fn the_words_are_those_of_rand_chacha() {
        CpuLevel::each(|_| {
            let seed: [u8; 32] = std::array::from_fn(|i| (i * 37 + 5) as u8);
            let key = std::array::from_fn(|i| {
                u32::from_le_bytes([seed[4 * i], seed[4 * i + 1], seed[4 * i + 2], seed[4 * i + 3]])
            });
            for (stream, first) in
                [(0, 0), (7, 16), (u64::MAX - 3, 1 << 40), (1 << 33, (1 << 32) - 8)]
            {
                let mut reference = ChaCha20Rng::from_seed(seed);
                reference.set_stream(stream);
                reference.set_word_pos(16 * u128::from(first));
                let ours = blocks(&key, stream, first);
                assert_eq!(ours, plain::blocks(&key, stream, first), "on any machine");
                for l in 0..LANES {
                    for word in &ours {
                        assert_eq!(
                            word[l],
                            reference.next_u32(),
                            "stream {stream}, block {first} + {l}"
                        );
                    }
                }
            }
        });
    }
}
