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
    /// The GPU of this number; fails with a clear sentence if the program was built without GPU
    /// support or has none.
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

    /// Which kind it is and, of a GPU, which model: others add in another order.
    pub fn machine(&self) -> String {
        let mut name = self.name().to_owned();
        if name == "cuda" {
            let folders =
                std::fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
            let mut models: Vec<String> = folders
                .filter_map(|folder| {
                    std::fs::read_to_string(folder.path().join("information")).ok()
                })
                .filter_map(|text| {
                    Some(
                        text.lines()
                            .find_map(|line| line.strip_prefix("Model:"))?
                            .trim()
                            .to_owned(),
                    )
                })
                .collect();
            models.sort();
            models.dedup();
            name = format!("{name} ({})", models.join(", "));
        } else if let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") {
            // The caches decide how products are cut into blocks.
            let value = |key| {
                text.lines()
                    .find_map(|line: &str| Some(line.strip_prefix(key)?.split_once(':')?.1.trim()))
            };
            let facts: Vec<&str> =
                ["model name", "cache size"].into_iter().filter_map(value).collect();
            name = format!("{name} ({})", facts.join(", "));
        }
        name
    }

    /// Candle's operations in main memory: slow, and the reference for what a GPU computes.
    pub fn candle_cpu() -> Self {
        Self::Device(candle_core::Device::Cpu)
    }
}
