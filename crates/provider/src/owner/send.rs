//! Sends frames, and asks again where an answer was lost.

use super::client::{Client, Response};
use crate::error::{Error, Result};
use std::time::Duration;

/// Waits before a frame is sent again.
const WAITS: [u64; 6] = [100, 300, 1_000, 2_000, 4_000, 8_000];

/// Sends a frame until it is answered. A frame that is sent again is the same to the byte.
pub fn send(client: &mut Client, path: &str, frame: &[u8]) -> Result<Response> {
    for wait in WAITS {
        match client.post(path, frame.to_vec()) {
            Ok(response) if !matches!(response.status, 408 | 429 | 502 | 503 | 504) => {
                return Ok(response);
            }
            // What the owner has to mend does not mend itself.
            Err(e @ Error::Mistake(_)) => return Err(e),
            Ok(_) | Err(_) => {
                client.close();
                std::thread::sleep(Duration::from_millis(wait));
            }
        }
    }
    client.post(path, frame.to_vec())
}
