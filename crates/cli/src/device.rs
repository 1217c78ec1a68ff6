//! Where the computing happens.

use crate::failure::Outcome;
use clap::{Args, ValueEnum};
use undertone::tensor::Device;

/// The device and the threads; neither changes a result beyond rounding.
#[derive(Args, Clone, Default)]
pub struct DeviceArguments {
    /// Where to compute
    #[arg(long, value_enum, default_value = "cpu")]
    device: Kind,
    /// Which of several GPUs
    #[arg(long, default_value_t = 0)]
    gpu: usize,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Kind {
    /// Our own kernels, on all cores
    #[default]
    Cpu,
    /// An NVIDIA GPU, if the program was built with --features cuda
    Cuda,
    /// candle's operations on the CPU: slow, the same that a GPU computes
    #[cfg(feature = "candle")]
    CandleCpu,
}

impl DeviceArguments {
    /// The same for another process of this program.
    pub fn again(&self) -> Vec<String> {
        let name = self.device.to_possible_value().map(|value| value.get_name().to_owned());
        let gpu = self.gpu.to_string();
        vec!["--device".into(), name.unwrap_or_default(), "--gpu".into(), gpu]
    }

    /// Whether all runs share one device that they do not share well.
    pub fn is_gpu(&self) -> bool {
        matches!(self.device, Kind::Cuda)
    }

    /// The device, or why it cannot be used.
    pub fn device(&self) -> Outcome<Device> {
        match self.device {
            Kind::Cpu => Ok(Device::Cpu),
            #[cfg(feature = "candle")]
            Kind::CandleCpu => Ok(Device::candle_cpu()),
            Kind::Cuda => Ok(Device::cuda(self.gpu).map_err(undertone::model::Error::from)?),
        }
    }
}
