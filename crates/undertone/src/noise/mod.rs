//! The proof of the effective noise multiplier of noise that differs between groups of coordinates,
//! and noise that is correlated across steps. [`undertone_tensor::noise`] draws the noise itself.
//!
//! # The lemma behind every gradient method
//!
//! Let the coordinates of a sum be split into groups k. Adding or removing one privacy unit moves
//! the sum by v with ‖v_k‖ ≤ C_k in group k ([clipping](crate::gradient) ensures this). Gaussian
//! noise of std s_k is added to group k. Scaling group k by 1/s_k is a bijection, so it does not
//! change privacy. It turns the noise into a standard normal vector and v into a vector of ℓ2 norm
//! ‖(v_k/s_k)_k‖ ≤ ( Σ_k (C_k/s_k)² )^½. The privacy loss of a Gaussian mechanism depends on that
//! norm alone and increases with it. So the step costs no more than the Gaussian mechanism with
//! noise multiplier
//!
//! ```text
//! σ_eff = ( Σ_k (C_k / s_k)² )^(−½)
//! ```
//!
//! and, with Poisson sampling, no more than the subsampled mechanism, which is what the ledger
//! records. A unit whose norm is C_k in every group attains the bound, so it is tight.
//! [`GroupedGaussian`] implements this lemma; [`Allocation`](crate::step::Allocation) implements it
//! with weights.

mod bands;
mod lemma;

pub use bands::Bands;
pub use lemma::GroupedGaussian;
pub use undertone_tensor::noise::{NOISE_BLOCK, Noise, Secret, purpose};
