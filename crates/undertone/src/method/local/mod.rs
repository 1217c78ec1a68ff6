//! Noise on what a record's owner sends: one release a record, seen by a provider who knows whose
//! it is.
//!
//! # What is proved
//!
//! The owner of record x computes rows f(x) that, divided by the direction d of the noise, have
//! Frobenius norm at most C ([`Sanitiser`](crate::model::layer::sanitiser::Sanitiser)), and sends
//! f(x) + s d ⊙ N(0, I). Dividing by d is a bijection, so this is as good as sending f(x)/d + N(0,
//! s² I).
//!
//! - *One release.* Replacing x moves f(x)/d by at most 2C, or √2 C if it has no negative number:
//!   ‖a − b‖² = ‖a‖² + ‖b‖² − 2⟨a, b⟩ ≤ 2C². So a release is a Gaussian mechanism with μ = Δ/s.
//!   **Which other records take part, and when, does not matter**: a record's release is seen on
//!   its own, so sampling does not amplify anything, and no accountant of sampled sums applies.
//! - *Fresh* noise in each of E epochs is E releases: μ² = Σ (Δ/s_e)².
//! - *Once*: with everything below the noise frozen, f(x) is the same in every epoch; the one
//!   release is used again and again, and costs once.
//! - *Path*: for s_1 ≥ … ≥ s_E let release E be f + N(0, s_E²), and release e be release e+1 plus
//!   N(0, s_e² − s_{e+1}²). The deviations are the scheduled ones, and every release is a function
//!   of the last one and of noise that has nothing to do with x: together they cost what the last
//!   one costs, μ = Δ/s_E. After epoch e, when releases 1 … e are out, they cost μ = Δ/s_e, so the
//!   ledger's entry of epoch e is the difference of the squares.
//! - *What may learn*: only what is computed from releases. Gradients into what is below the noise,
//!   or into the encoder, are functions of the record itself; in proved mode there are none.
//!   Dropout below the noise would make f(x) differ between epochs; there is none either.
//! - *Labels* go through k-ary randomised response, once, and are an entry of their own.
//! - *Lengths*: one row a sequence, or as many rows for every sequence, so that the number of
//!   tokens does not show.

mod accounting;
mod labels;
pub mod mvg;
mod records;

pub use accounting::{Release, Releases};
pub use labels::RandomisedLabels;
pub use records::{BatchNoise, EmbeddingNoise};
