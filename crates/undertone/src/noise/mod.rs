//! Gaussian noise from a CSPRNG (ChaCha20), the secret that it is drawn from, and the proof of the
//! effective noise multiplier of noise that differs between groups of coordinates.
//!
//! # The lemma behind every gradient method
//!
//! Let the coordinates of a sum be split into groups k. Adding or removing one privacy unit moves
//! the sum by v with ‖v_k‖ ≤ C_k in group k (that is what [clipping](crate::gradient) ensures).
//! Gaussian noise of deviation s_k is added to group k. Scaling group k by 1/s_k, which is a
//! bijection and so changes nothing, turns the noise into a standard normal vector and v into one
//! of length ‖(v_k/s_k)_k‖ ≤ ( Σ_k (C_k/s_k)² )^½. A Gaussian mechanism is determined by that
//! length alone, and is the worse the longer it is. So the step is no worse than the Gaussian
//! mechanism with noise multiplier
//!
//! ```text
//! σ_eff = ( Σ_k (C_k / s_k)² )^(−½)
//! ```
//!
//! and with Poisson sampling it is the subsampled one, which is what the ledger is told. The bound
//! is reached by a unit that is as long as allowed in every group, so it cannot be improved.
//! [`GroupedGaussian`] is this lemma; [`Allocation`](crate::method::central::Allocation) has it with weights.

mod chacha;
mod draw;
mod lemma;
mod normal;
mod secret;

pub use draw::{GRAIN, Noise};
pub use lemma::GroupedGaussian;
pub use secret::{Secret, purpose};
