//! Gaussian noise from a CSPRNG (ChaCha20), and the secret that it is derived from.
//!
//! The noise of a coordinate is the same function of secret, step and coordinate on every backend,
//! bit for bit.

pub(crate) mod chacha;
mod draw;
mod normal;
mod secret;

pub use draw::{NOISE_BLOCK, Noise};
pub use secret::{Secret, purpose};
