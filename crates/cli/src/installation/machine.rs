//! Facts about the machine, and whether files can be written and locked on it.

use super::check::Checked;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use undertone::tensor::{CpuLevel, CudaReport};

pub fn checks(folder: &Path) -> Vec<Checked> {
    vec![
        Checked::note("version", format!("undertone {}", env!("CARGO_PKG_VERSION"))),
        processor(),
        memory(),
        gpu(),
        Checked::of("files", files(folder)),
    ]
}

fn processor() -> Checked {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let level = CpuLevel::current().name();
    let plural = if threads == 1 { "" } else { "s" };
    Checked::note("processor", format!("{level}, {threads} thread{plural}"))
}

fn memory() -> Checked {
    let gibibytes = |key: &str| {
        let all = fs::read_to_string("/proc/meminfo").ok()?;
        let line = all.lines().find(|line| line.starts_with(key))?;
        let kibibytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kibibytes / f64::from(1 << 20))
    };
    let detail = match (gibibytes("MemAvailable:"), gibibytes("MemTotal:")) {
        (Some(available), Some(total)) => format!("{available:.1} of {total:.1} GiB available"),
        _ => "unknown on this system".to_owned(),
    };
    Checked::note("memory", detail)
}

fn gpu() -> Checked {
    let report = CudaReport::new();
    let names: Vec<&str> = report.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    let detail = match (names.is_empty(), report.is_complete()) {
        (true, _) => "none (training uses the CPU)".to_owned(),
        (false, true) => names.join(", "),
        (false, false) => format!("{}, unusable: {}", names.join(", "), report.missing.join("; ")),
    };
    Checked::note("GPU", detail)
}

/// Writes, locks, reads and removes a file, as a run folder needs.
fn files(folder: &Path) -> Result<String, String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", folder.display());
    let own = tempfile::tempdir_in(folder).map_err(|e| failed(&e))?;
    let path = own.path().join("file");
    for text in ["first", "second"] {
        undertone_run::write_atomically(&path, |out| out.write_all(text.as_bytes()))
            .map_err(|e| failed(&e))?;
        let read = fs::read_to_string(&path).map_err(|e| failed(&e))?;
        if read != text {
            return Err(failed(&"a file does not contain what was written to it"));
        }
    }
    let open = || File::open(&path).map_err(|e| failed(&e));
    let (held, other) = (open()?, open()?);
    held.try_lock().map_err(|e| failed(&e))?;
    if other.try_lock().is_ok() {
        return Err(failed(&"file locks do not exclude a second writer; use a local disk"));
    }
    Ok(format!("atomic writes and locks work in {}", folder.display()))
}
