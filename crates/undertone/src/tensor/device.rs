//! Where matrices live and operations run.

use super::Result;

/// The CPU with our own kernels, or a device of another backend.
#[derive(Clone, Debug)]
pub enum Device {
    /// Main memory, with our own kernels on all cores.
    Cpu,
    /// A candle device, with candle's operations.
    #[cfg(feature = "candle")]
    Candle(candle_core::Device),
}

impl Device {
    /// The GPU of this number; an error if the program was built without GPU support or there is
    /// no such GPU.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Ok(Self::Candle(candle_core::Device::new_cuda(ordinal)?))
    }

    /// An error: the program was built without GPU support.
    #[cfg(not(feature = "cuda"))]
    pub fn cuda(_: usize) -> Result<Self> {
        Err(super::Error::NoGpuSupport)
    }

    /// Candle's operations in main memory: slow, and the same that a GPU computes.
    #[cfg(feature = "candle")]
    pub fn candle_cpu() -> Self {
        Self::Candle(candle_core::Device::Cpu)
    }

    /// Which kind it is.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            #[cfg(feature = "candle")]
            Self::Candle(device) if device.is_cuda() => "cuda",
            #[cfg(feature = "candle")]
            Self::Candle(_) => "candle",
        }
    }

    /// Which kind it is and which model: others add in another order. Run folders keep it, and
    /// know the CPU as "host".
    pub fn machine(&self) -> String {
        let (name, models) = match self.name() {
            "cuda" => ("cuda", Some(gpu_models())),
            "cpu" => ("host", processor()),
            name => (name, processor()),
        };
        models.map_or(name.to_owned(), |models| format!("{name} ({})", models.join(", ")))
    }
}

/// The models of all NVIDIA GPUs.
fn gpu_models() -> Vec<String> {
    let folders = std::fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
    let mut models: Vec<String> = folders
        .filter_map(|folder| std::fs::read_to_string(folder.path().join("information")).ok())
        .filter_map(|text| {
            let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
            Some(model.trim().to_owned())
        })
        .collect();
    models.sort();
    models.dedup();
    models
}

/// Model and cache of the processor: the caches decide how products are cut into blocks.
fn processor() -> Option<Vec<String>> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let value = |key| {
        text.lines().find_map(|line: &str| Some(line.strip_prefix(key)?.split_once(':')?.1.trim()))
    };
    Some(["model name", "cache size"].into_iter().filter_map(value).map(str::to_owned).collect())
}
