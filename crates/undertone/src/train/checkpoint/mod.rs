//! Checkpoints: weights, optimizer state and method state on disk, for resuming a run.
//!
//! A step depends on the weights at its start, and on resuming, its noise is reused. A checkpoint
//! that was modified, or that belongs to another run, would put the same noise on a different sum.
//! So a checkpoint carries a message authentication code (HMAC-SHA-256) over the whole file, keyed
//! by the run's secret, which is verified before anything in the file is used.
//!
//! With several ranks, rank 0 writes and reads the file. It gathers the optimizer state, of which
//! each rank holds a part, and distributes what it reads, one tensor at a time. The file does not
//! depend on the number of ranks.

mod load;
mod save;

pub use load::load;
pub use save::save;

use crate::noise::{Secret, purpose};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The header key of the authentication code, and its placeholder value while the code is computed.
const CODE: &str = "authentication";
const BLANK: [u8; 64] = [b'0'; 64];

/// Authenticates checkpoints with a key derived from the run's secret.
pub struct CheckpointKey(Hmac<Sha256>);

impl CheckpointKey {
    pub fn new(secret: &Secret) -> Self {
        let key = secret.key(purpose::CHECKPOINT);
        Self(Hmac::new_from_slice(&key).expect("HMAC takes keys of any length"))
    }

    /// Starts computing the code of a file in which the code is blank.
    fn begin(&self) -> Hmac<Sha256> {
        self.0.clone()
    }

    /// Whether the file carries the right authentication code.
    fn verifies(&self, file: &[u8], said: &str) -> bool {
        let Some(place) = place_of_code(file, said.as_bytes()) else { return false };
        let code: Option<Vec<u8>> = said
            .as_bytes()
            .chunks_exact(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let mac = self.0.clone().chain_update(&file[..place.start]).chain_update(BLANK);
        let mac = mac.chain_update(&file[place.end..]);
        code.is_some_and(|code| mac.verify_slice(&code).is_ok())
    }
}

/// The byte range of the authentication code's value in the file.
fn place_of_code(file: &[u8], value: &[u8]) -> Option<std::ops::Range<usize>> {
    let header = u64::from_le_bytes(*file.first_chunk::<8>()?);
    let header = file.get(8..8_usize.checked_add(usize::try_from(header).ok()?)?)?;
    let member = [b"\"", CODE.as_bytes(), b"\":\"", value, b"\""].concat();
    let position = header.windows(member.len()).position(|window| window == member)?;
    let start = 8 + position + CODE.len() + 4;
    (value.len() == BLANK.len()).then(|| start..start + value.len())
}
