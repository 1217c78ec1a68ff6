//! Peak memory of the process.

use crate::tensor::Device;
use std::sync::atomic::{AtomicU64, Ordering};

/// The highest peak before the most recent reset.
static EARLIER_PEAK: AtomicU64 = AtomicU64::new(0);

/// Peak resident memory of the process in bytes, on Linux.
pub fn peak_memory() -> Option<u64> {
    Some(status("VmHWM:")?.max(EARLIER_PEAK.load(Ordering::Relaxed)))
}

/// A value from /proc/self/status, in bytes.
fn status(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Measures how much memory one part of a run needs on top of what was resident before it.
pub struct PartOfRun {
    before: u64,
}

impl PartOfRun {
    /// Starts measuring. `None` if the system does not allow a process to reset its peak (Linux
    /// does).
    pub fn begin() -> Option<Self> {
        EARLIER_PEAK.fetch_max(status("VmHWM:")?, Ordering::Relaxed);
        std::fs::write("/proc/self/clear_refs", "5").ok()?;
        Some(Self { before: status("VmRSS:")? })
    }

    /// Peak resident memory since [`Self::begin`], minus the memory resident at that time, in
    /// bytes.
    pub fn peak(&self) -> Option<u64> {
        Some(status("VmHWM:")?.saturating_sub(self.before))
    }
}

/// GPU memory that a run needs. This is the process's own count, since other programs may use the
/// same GPU.
#[derive(Debug, Default)]
pub struct GpuMemory {
    /// Peak in bytes; `None` on the CPU.
    pub peak: Option<u64>,
}

impl GpuMemory {
    /// Starts measuring; call this before loading a model.
    pub fn begin(device: &Device) -> Self {
        device.reset_peak_memory();
        Self { peak: None }
    }

    /// Updates the peak; call this after each step.
    pub fn look(&mut self, device: &Device) {
        self.peak = self.peak.max(device.peak_memory());
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// Memory freed within the part still counts, and the peak of the whole process is preserved.
    #[test]
    fn a_part_has_a_peak_of_its_own() {
        let Some(whole) = peak_memory() else { return };
        let Some(part) = PartOfRun::begin() else { return };
        let bytes = 64 << 20;
        drop(std::hint::black_box(vec![1_u8; bytes]));
        // Other tests in this process may free memory in the meantime.
        assert!(part.peak().unwrap() > bytes as u64 / 2);
        assert!(peak_memory().unwrap() >= whole);
    }
}
