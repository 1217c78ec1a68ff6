//! Sends frames, and retries if a response was lost.

use super::client::{Client, Response};
use crate::error::{Error, Result};
use std::time::Duration;

/// Delays before a frame is resent.
const WAITS: [u64; 6] = [100, 300, 1_000, 2_000, 4_000, 8_000];

/// Sends a frame until it gets a response. A resent frame has the same bytes.
pub fn send(client: &mut Client, path: &str, frame: &[u8]) -> Result<Response> {
    for wait in WAITS {
        match client.post(path, frame.to_vec()) {
            Ok(response) if !matches!(response.status, 408 | 429 | 502 | 503 | 504) => {
                return Ok(response);
            }
            // Errors that the owner must fix are not retried.
            Err(e @ Error::Mistake(_)) => return Err(e),
            Ok(_) | Err(_) => {
                client.close();
                std::thread::sleep(Duration::from_millis(wait));
            }
        }
    }
    client.post(path, frame.to_vec())
}
