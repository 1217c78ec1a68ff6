//! `undertone device`

use crate::failure::Outcome;
use crate::output::{self, Output};
use clap::Args;
use serde_json::{Value, json};
use undertone::tensor::{CpuLevel, CudaReport};
pub use undertone_terminal::device::DeviceArguments;

/// List the CPU, GPUs and CUDA libraries, and any that are missing
#[derive(Args)]
#[command(after_help = "Example:\n  undertone device --json")]
pub struct List {}

impl List {
    pub fn run(self, output: Output) -> Outcome {
        let report = CudaReport::new();
        if output.json {
            output::json(&as_json(&report));
            return Ok(());
        }
        let (detected, used) = (CpuLevel::detected(), CpuLevel::current());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let capped = if used < detected { " (UNDERTONE_CPU)" } else { "" };
        output::line(format_args!(
            "processor: {} found, {} used{capped}, {cores} threads",
            detected.name(),
            used.name()
        ));
        for (number, gpu) in report.gpus.iter().enumerate() {
            let (major, minor) = gpu.compute_capability;
            let memory = gpu.memory >> 20;
            output::line(format_args!(
                "cuda:{number}: {}, {memory} MiB, compute capability {major}.{minor}",
                gpu.name
            ));
        }
        for library in &report.libraries {
            let version = library.version.as_deref().map(|v| format!(" {v}")).unwrap_or_default();
            let path = library.path.as_ref().map(|p| format!(", {}", p.display()));
            let path = path.unwrap_or_default();
            output::line(format_args!("found: {}{version}{path}", library.name));
        }
        report.missing.iter().for_each(|missing| output::line(format_args!("missing: {missing}")));
        Ok(())
    }
}

fn as_json(report: &CudaReport) -> Value {
    let gpus = report.gpus.iter().map(|gpu| {
        let (major, minor) = gpu.compute_capability;
        json!({
            "name": gpu.name,
            "memory_bytes": gpu.memory,
            "compute_capability": format!("{major}.{minor}"),
        })
    });
    let libraries = report.libraries.iter().map(
        |library| json!({ "name": library.name, "version": library.version, "path": library.path }),
    );
    json!({
        "processor": CpuLevel::current().name(),
        "processor_found": CpuLevel::detected().name(),
        "processor_levels": CpuLevel::available().map(CpuLevel::name).collect::<Vec<_>>(),
        "gpus": gpus.collect::<Value>(),
        "libraries": libraries.collect::<Value>(),
        "missing": report.missing,
        "gpu_usable": report.is_complete(),
    })
}
