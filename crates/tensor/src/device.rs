//! Devices, which hold matrices and run operations.

use super::cpu::parallel::awake;
use super::cuda::batch_invariant;
use super::{CudaDevice, Error, Result};
use crate::Precision;
use std::process::Command;

/// A CPU or GPU device.
#[derive(Clone, Debug)]
pub enum Device {
    /// Main memory, with our own kernels on all cores.
    Cpu,
    /// An NVIDIA GPU, with our own kernels and cuBLAS.
    Cuda(CudaDevice),
}

impl Device {
    /// The GPU with this ordinal; an error is one sentence that says what is missing.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Ok(Self::Cuda(CudaDevice::open(ordinal)?))
    }

    /// The same device with matrix products and activations in `precision`; the CPU supports only
    /// f32.
    pub fn with_precision(self, precision: Precision) -> Result<Self> {
        match self {
            Self::Cpu if precision == Precision::F32 => Ok(Self::Cpu),
            Self::Cpu => {
                Err(Error::Unsupported(format!("{precision} needs a GPU: the CPU computes in f32")))
            }
            Self::Cuda(device) => Ok(Self::Cuda(device.with_precision(precision))),
        }
    }

    /// The precision of matrix products and activations.
    pub fn precision(&self) -> Precision {
        match self {
            Self::Cpu => Precision::F32,
            Self::Cuda(device) => device.precision(),
        }
    }

    /// Runs `body`, a computation of many operations, so that each operation starts without delay.
    /// `body` must not wait for other threads of the program.
    pub fn compute<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Cpu => awake(body),
            // A GPU's context belongs to the thread that opened it.
            Self::Cuda(_) => body(),
        }
    }

    /// Like [`Self::compute`], but the result for one example does not depend on the other examples
    /// in its batch: adding a unit must not change how the gradients of the others are rounded. In
    /// bf16, such rounding changed a sum of gradients by up to 0.6 % of the clipping norm.
    pub fn compute_batch_invariant<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Cpu => self.compute(body),
            Self::Cuda(_) => self.compute(|| batch_invariant(body)),
        }
    }

    /// Waits until all queued work is done; a GPU runs asynchronously to the program.
    pub fn synchronize(&self) -> Result<()> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda(device) => device.synchronize(),
        }
    }

    /// Total GPU memory in bytes; `None` for the CPU.
    pub fn memory(&self) -> Option<u64> {
        match self {
            Self::Cpu => None,
            Self::Cuda(device) => device.memory(),
        }
    }

    /// GPU memory in use by all processes, in bytes; `None` for the CPU.
    pub fn memory_in_use(&self) -> Option<u64> {
        match self {
            Self::Cpu => None,
            Self::Cuda(device) => device.memory_in_use(),
        }
    }

    /// Peak GPU memory in bytes that matrices of this process have used since
    /// [`Self::reset_peak_memory`]; `None` for the CPU.
    pub fn peak_memory(&self) -> Option<u64> {
        match self {
            Self::Cpu => None,
            Self::Cuda(device) => device.peak(),
        }
    }

    /// Resets the peak memory counter.
    pub fn reset_peak_memory(&self) {
        if let Self::Cuda(device) = self {
            device.reset_peak();
        }
    }

    /// Name of the device kind.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda(_) => "cuda",
        }
    }

    /// Description of the machine: device kind, model and, for a GPU, library versions, because
    /// other versions may sum in a different order. Run folders record this string, in which the
    /// CPU is called "host".
    pub fn machine(&self) -> String {
        match self {
            Self::Cuda(device) => format!("cuda ({})", device.machine()),
            Self::Cpu => match processor() {
                models if models.is_empty() => "host".to_owned(),
                models => format!("host ({})", models.join(", ")),
            },
        }
    }
}

/// Model and cache size of the processor, as far as the system names them; the cache size
/// determines how products are split into blocks.
fn processor() -> Vec<String> {
    let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") else {
        // Windows sets this variable.
        let name = std::env::var("PROCESSOR_IDENTIFIER").ok().or_else(brand);
        return name.into_iter().collect();
    };
    let value = |key| {
        text.lines().find_map(|line: &str| Some(line.strip_prefix(key)?.split_once(':')?.1.trim()))
    };
    // On ARM, Linux reports numbers instead of a name.
    let keys = ["model name", "cache size", "CPU implementer", "CPU part"];
    keys.into_iter().filter_map(value).map(str::to_owned).collect()
}

/// The processor's name on macOS.
fn brand() -> Option<String> {
    let asked = Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]).output().ok()?;
    let name = String::from_utf8(asked.stdout).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
