//! Where matrices live.

use super::Result;

/// Main memory, or a candle device.
#[derive(Clone, Debug)]
pub enum Place {
    /// Main memory, with our own kernels.
    Host,
    /// A candle device, with candle's operations.
    Device(candle_core::Device),
}

impl Place {
    /// The GPU of this number; fails with a clear sentence if the program was built without GPU support or has none.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Ok(Self::Device(candle_core::Device::new_cuda(ordinal)?))
    }

    /// Which kind it is.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device(device) if device.is_cuda() => "cuda",
            Self::Device(_) => "candle",
        }
    }

    /// Candle's operations in main memory: slow, and the reference for what a GPU computes.
    pub fn candle_cpu() -> Self {
        Self::Device(candle_core::Device::Cpu)
    }
}
