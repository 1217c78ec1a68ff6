//! Where matrices live and operations run.

use super::cpu::parallel::awake;
use super::{CudaDevice, Error, Result};
use undertone_run::Precision;

/// The CPU, or a GPU.
#[derive(Clone, Debug)]
pub enum Device {
    /// Main memory, with our own kernels on all cores.
    Cpu,
    /// An NVIDIA GPU, with our own kernels and cuBLAS.
    Cuda(CudaDevice),
}

impl Device {
    /// The GPU of this number; an error is one sentence that says what is missing.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Ok(Self::Cuda(CudaDevice::open(ordinal)?))
    }

    /// The same device with matrix products and activations in a precision; the CPU has f32 alone.
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

    /// Runs a computation of many operations so that each begins at once. It must not wait for
    /// other threads of the program.
    pub fn compute<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Cpu => awake(body),
            // A GPU's context belongs to the thread that has opened it.
            Self::Cuda(_) => body(),
        }
    }

    /// Waits until everything that was asked for is done: a GPU computes while the program goes on.
    pub fn synchronise(&self) -> Result<()> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda(device) => device.synchronise(),
        }
    }

    /// Bytes of the GPU's memory; none for the CPU.
    pub fn memory(&self) -> Option<u64> {
        match self {
            Self::Cpu => None,
            Self::Cuda(device) => device.memory(),
        }
    }

    /// Bytes of the GPU's memory that are in use, by all its users; none for the CPU.
    pub fn memory_in_use(&self) -> Option<u64> {
        match self {
            Self::Cpu => None,
            Self::Cuda(device) => device.memory_in_use(),
        }
    }

    /// The most bytes of the GPU's memory that matrices of this process have taken at a time since
    /// [`Self::reset_peak_memory`]; none for the CPU.
    pub fn peak_memory(&self) -> Option<u64> {
        match self {
            Self::Cpu => None,
            Self::Cuda(device) => device.peak(),
        }
    }

    /// Counts the peak from now on.
    pub fn reset_peak_memory(&self) {
        if let Self::Cuda(device) = self {
            device.reset_peak();
        }
    }

    /// Which kind it is.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda(_) => "cuda",
        }
    }

    /// Which kind it is, which model, and for a GPU which libraries: others add in another order.
    /// Run folders keep it, and know the CPU as "host".
    pub fn machine(&self) -> String {
        match self {
            Self::Cuda(device) => format!("cuda ({})", device.machine()),
            Self::Cpu => match processor() {
                Some(models) => format!("host ({})", models.join(", ")),
                None => "host".to_owned(),
            },
        }
    }
}

/// Model and cache of the processor: the caches decide how products are cut into blocks.
fn processor() -> Option<Vec<String>> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let value = |key| {
        text.lines().find_map(|line: &str| Some(line.strip_prefix(key)?.split_once(':')?.1.trim()))
    };
    Some(["model name", "cache size"].into_iter().filter_map(value).map(str::to_owned).collect())
}
