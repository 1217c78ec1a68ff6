//! Unkeyed BLAKE2b (RFC 7693), with which minisign hashes files.

const IV: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

const SIGMA: [[usize; 16]; 10] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

/// The hash of `N` bytes, at most 64.
pub fn blake2b<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut state = IV;
    state[0] ^= 0x0101_0000 ^ N as u64;
    let mut done = 0_u128;
    let blocks = bytes.len().div_ceil(128).max(1);
    for index in 0..blocks {
        let block = &bytes[128 * index..bytes.len().min(128 * (index + 1))];
        done += block.len() as u128;
        compress(&mut state, block, done, index + 1 == blocks);
    }
    let mut hash = [0; N];
    let all = state.iter().flat_map(|word| word.to_le_bytes());
    hash.iter_mut().zip(all).for_each(|(byte, own)| *byte = own);
    hash
}

fn compress(state: &mut [u64; 8], block: &[u8], done: u128, is_last: bool) {
    let mut message = [0_u64; 16];
    for (word, bytes) in message.iter_mut().zip(block.chunks(8)) {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(eight);
    }
    let mut v = [0; 16];
    v[..8].copy_from_slice(state);
    v[8..].copy_from_slice(&IV);
    v[12] ^= done as u64;
    v[13] ^= (done >> 64) as u64;
    if is_last {
        v[14] = !v[14];
    }
    let mut mix = |a: usize, b: usize, c: usize, d: usize, x: u64, y: u64| {
        v[a] = v[a].wrapping_add(v[b]).wrapping_add(x);
        v[d] = (v[d] ^ v[a]).rotate_right(32);
        v[c] = v[c].wrapping_add(v[d]);
        v[b] = (v[b] ^ v[c]).rotate_right(24);
        v[a] = v[a].wrapping_add(v[b]).wrapping_add(y);
        v[d] = (v[d] ^ v[a]).rotate_right(16);
        v[c] = v[c].wrapping_add(v[d]);
        v[b] = (v[b] ^ v[c]).rotate_right(63);
    };
    for round in 0..12 {
        let m = |i: usize| message[SIGMA[round % 10][i]];
        for i in 0..4 {
            mix(i, 4 + i, 8 + i, 12 + i, m(2 * i), m(2 * i + 1));
        }
        for i in 0..4 {
            let (b, c, d) = (4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
            mix(i, b, c, d, m(8 + 2 * i), m(9 + 2 * i));
        }
    }
    for (i, word) in state.iter_mut().enumerate() {
        *word ^= v[i] ^ v[i + 8];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// From Python: `hashlib.blake2b(message, digest_size=n).hexdigest()`.
    #[test]
    fn hashes_are_those_of_another_implementation() {
        assert_eq!(
            hex(&blake2b::<64>(b"abc")),
            concat!(
                "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1",
                "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
            )
        );
        assert_eq!(
            hex(&blake2b::<64>(&[b'a'; 128])),
            concat!(
                "fc6c71f688f43ea7d60817478808f3cac753e61571865c95adbc2d9122c943a7",
                "6b92c2cb1047ef3fe7bf6e436ec1d0a99a9e5b216780bf7fed9d7ca91d3a8f3b",
            )
        );
        assert_eq!(
            hex(&blake2b::<64>(&[b'a'; 129])),
            concat!(
                "55e6e0eb418149a8af92fd9ddc99254781b2f522a131b4f4d984404b71a00e11",
                "67b8124d5dcddd4c6977b299392335d6edd303da6d344d74bbef2d38101b232b",
            )
        );
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(
            hex(&blake2b::<32>(&all)),
            "39a7eb9fedc19aabc83425c6755dd90e6f9d0c804964a1f4aaeea3b9fb599835"
        );
    }
}
