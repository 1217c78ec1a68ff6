//! Coordinate weights.

use super::cuda::{Buffer, Gpu};
use super::error::Result;
use std::sync::{Arc, OnceLock};

/// A weight for each coordinate of a parameter, in row-major order: an importance, or a mask of
/// zeros and ones. A GPU that needs the weights keeps a copy.
#[derive(Debug, Default)]
pub struct CoordinateWeights {
    values: Vec<f32>,
    on_gpu: OnceLock<Arc<Buffer>>,
}

impl CoordinateWeights {
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The weights, for modification.
    pub fn values_mut(&mut self) -> &mut [f32] {
        self.on_gpu.take();
        &mut self.values
    }

    /// The largest weight.
    pub(crate) fn largest(&self) -> f64 {
        f64::from(self.values.iter().copied().fold(0.0, f32::max))
    }

    /// The copy of the weights on a GPU. A program uses only one GPU.
    pub(super) fn on_gpu(&self, gpu: &'static Gpu) -> Result<Arc<Buffer>> {
        if let Some(copy) = self.on_gpu.get() {
            return Ok(copy.clone());
        }
        let copy = Arc::new(gpu.upload(&self.values)?);
        Ok(self.on_gpu.get_or_init(|| copy).clone())
    }
}

impl From<Vec<f32>> for CoordinateWeights {
    fn from(values: Vec<f32>) -> Self {
        Self { values, on_gpu: OnceLock::new() }
    }
}

impl PartialEq for CoordinateWeights {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}
