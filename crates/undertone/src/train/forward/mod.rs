//! Learning from perturbed records: what stands above the noise knows how loud it is, and corrects
//! for it.

mod adapt;
mod adapt_privately;
mod calibration;
mod discriminant;
mod encoder;
mod moments;
mod prepare;
mod steps;

pub use prepare::{Facts, Perturbing, prepare};
pub use steps::Cache;
