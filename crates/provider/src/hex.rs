//! Bytes in hexadecimal, hashes and random bytes.

use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// SHA-256.
pub type Hash = [u8; 32];

/// Lowercase hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Parses hexadecimal digits; `None` if their number is wrong.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        // `from_str_radix` would accept a sign.
        if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

/// SHA-256 of some bytes.
pub fn hash(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// SHA-256 and length of a file.
pub fn hash_file(path: &Path) -> Result<(Hash, u64)> {
    let mut file = undertone_run::open_regular(path).map_err(Error::io(path))?;
    let (mut digest, mut length) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).map_err(Error::io(path))?;
        if read == 0 {
            return Ok((digest.finalize().into(), length));
        }
        digest.update(&buffer[..read]);
        length += read as u64;
    }
}

/// Random bytes from the operating system.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::failed(format!(
            "the operating system provides no random numbers: \
                                            {e}"
        ))
    })?;
    Ok(bytes)
}

/// HMAC-SHA-256 of several parts, each preceded by its length, so that different lists of parts
/// give different messages.
pub fn keyed_hash(key: &[u8; 32], parts: &[&[u8]]) -> Hash {
    use hmac::{Hmac, KeyInit, Mac};
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_back_and_others_refused() {
        assert_eq!(unhex::<3>(&hex(&[0, 171, 255])), Some([0, 171, 255]));
        for wrong in ["", "00", "0000000", "00zz00", "+10000", "0é00"] {
            assert_eq!(unhex::<3>(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parts_are_kept_apart() {
        let key = [7; 32];
        assert_ne!(keyed_hash(&key, &[b"ab", b"c"]), keyed_hash(&key, &[b"a", b"bc"]));
        assert_ne!(keyed_hash(&key, &[b"ab"]), keyed_hash(&[8; 32], &[b"ab"]));
    }
}
