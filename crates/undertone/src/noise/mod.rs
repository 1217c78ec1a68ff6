//! Gaussian noise from a CSPRNG (ChaCha20), the secret that it is drawn from, and the proof of the
//! effective noise multiplier of noise that differs between groups of coordinates.
//!
//! # The lemma behind every gradient method
//!
//! Let the coordinates of a sum be split into groups k. Adding or removing one privacy unit moves
//! the sum by v with ‖v_k‖ ≤ C_k in group k (that is what [clipping](crate::gradient) ensures).
//! Gaussian noise of std s_k is added to group k. Scaling group k by 1/s_k, a bijection, changes
//! nothing about privacy and turns the noise into a standard normal vector and v into one of ℓ2
//! norm ‖(v_k/s_k)_k‖ ≤ ( Σ_k (C_k/s_k)² )^½. The privacy loss of a Gaussian mechanism depends on
//! that norm alone, and grows with it. So the step costs no more than the Gaussian mechanism with
//! noise multiplier
//!
//! ```text
//! σ_eff = ( Σ_k (C_k / s_k)² )^(−½)
//! ```
//!
//! and with Poisson sampling no more than the subsampled one, which is what the ledger records. A
//! unit whose norm is C_k in every group reaches the bound, so it is tight. [`GroupedGaussian`] is
//! this lemma; [`Allocation`](crate::method::central::Allocation) has it with weights.

mod bands;
pub(crate) mod chacha;
mod draw;
mod lemma;
mod normal;
mod secret;

pub use bands::Bands;
pub use draw::{NOISE_BLOCK, Noise};
pub use lemma::GroupedGaussian;
pub use secret::{Secret, purpose};
