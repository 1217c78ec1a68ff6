//! Where the computing happens, and `undertone device`.

use crate::failure::Outcome;
use crate::output::{self, Output};
use clap::Args;
use serde_json::{Value, json};
use std::str::FromStr;
use std::sync::Once;
use undertone::tensor::{CpuLevel, CudaDevice, CudaReport, Device};
use undertone_run::Precision;

/// The device; it changes no result beyond rounding.
#[derive(Args, Clone, Default)]
pub struct DeviceArguments {
    /// Where to compute: auto takes an NVIDIA GPU if there is one (each of the processes that
    /// torchrun, mpirun or srun starts on a machine takes another), cuda:1 the second of several
    #[arg(long, value_name = "auto|cpu|cuda[:N]", default_value = "auto")]
    device: Choice,
    /// Precision of matrix products and activations [default: bf16 on a GPU, f32 on the CPU]
    #[arg(long, value_name = "f32|tf32|bf16", value_parser = precision)]
    precision: Option<Precision>,
}

fn precision(text: &str) -> Result<Precision, &'static str> {
    let found = Precision::ALL.into_iter().find(|precision| precision.name() == text);
    found.ok_or("it is f32, tf32 or bf16")
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Choice {
    /// The first GPU if it can be used, otherwise the CPU.
    Auto,
    /// All cores.
    #[default]
    Cpu,
    /// The GPU of this number.
    Cuda(usize),
}

impl FromStr for Choice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").and_then(|number| number.parse().ok());
                number.map(Self::Cuda).ok_or("it is auto, cpu, cuda or cuda:N")
            }
        }
    }
}

impl DeviceArguments {
    /// The same for another process of this program.
    pub fn again(&self) -> Vec<String> {
        let device = match self.chosen() {
            Some(ordinal) => format!("cuda:{ordinal}"),
            None => "cpu".to_owned(),
        };
        let mut again = vec!["--device".into(), device];
        if let Some(precision) = self.precision {
            again.extend(["--precision".into(), precision.to_string()]);
        }
        again
    }

    /// The precision that was asked for.
    pub fn precision(&self) -> Option<Precision> {
        self.precision
    }

    /// Whether all runs share one device that they do not share well.
    pub fn is_gpu(&self) -> bool {
        self.chosen().is_some()
    }

    /// The number of the GPU that is used, if one is.
    fn chosen(&self) -> Option<usize> {
        match self.device {
            Choice::Cpu => None,
            Choice::Cuda(ordinal) => Some(ordinal),
            Choice::Auto => CudaDevice::open(own_gpu()).ok().map(|gpu| gpu.ordinal()),
        }
    }

    /// The device, or why it cannot be used.
    pub fn device(&self) -> Outcome<Device> {
        let device = match self.device {
            Choice::Cpu => Device::Cpu,
            Choice::Cuda(ordinal) => {
                Device::cuda(ordinal).map_err(undertone::model::Error::from)?
            }
            Choice::Auto => automatic(),
        };
        let usual = match device {
            Device::Cpu => Precision::F32,
            Device::Cuda(_) => Precision::Bf16,
        };
        let device = device.with_precision(self.precision.unwrap_or(usual));
        Ok(device.map_err(undertone::model::Error::from)?)
    }
}

/// Variables in which launchers count the processes that they start on one machine.
const PLACES_ON_MACHINE: [&str; 4] =
    ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// The GPU of this process: the first, or for one of several that a launcher has started here the
/// next in turn. A launcher that shows each process one GPU alone has chosen already.
fn own_gpu() -> usize {
    gpu_of_place(&|name| std::env::var(name).ok(), CudaDevice::count())
}

fn gpu_of_place(variable: &dyn Fn(&str) -> Option<String>, gpus: usize) -> usize {
    let number = |name: &&str| variable(name)?.trim().parse::<usize>().ok();
    PLACES_ON_MACHINE.iter().find_map(number).unwrap_or(0) % gpus.max(1)
}

/// A GPU if it can be used, otherwise the CPU; what is to be said about it is said once.
fn automatic() -> Device {
    static SAID: Once = Once::new();
    match CudaDevice::open(own_gpu()) {
        Ok(gpu) => {
            SAID.call_once(|| {
                output::note(format_args!("computing on {} (--device cpu does not)", gpu.model()));
            });
            Device::Cuda(gpu)
        }
        Err(error) => {
            // Where there is no GPU, there is nothing to say.
            if CudaDevice::count() > 0 {
                SAID.call_once(|| {
                    output::note(format_args!("there is a GPU, but the CPU computes: {error}"));
                });
            }
            Device::Cpu
        }
    }
}

/// List processor, GPUs and libraries of CUDA, and what is missing
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
        let (found, used) = (CpuLevel::detected(), CpuLevel::current());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let capped = if used < found { " (UNDERTONE_CPU)" } else { "" };
        output::line(format_args!(
            "processor: {} found, {} used{capped}, {cores} threads",
            found.name(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_of_a_launcher_has_another_gpu() {
        let with = |name: &'static str, value: &'static str| {
            move |asked: &str| (asked == name).then(|| value.to_owned())
        };
        assert_eq!(gpu_of_place(&|_| None, 4), 0);
        for name in PLACES_ON_MACHINE {
            let of = |value, gpus| gpu_of_place(&with(name, value), gpus);
            assert_eq!([of("0", 4), of("3", 4), of("5", 4)], [0, 3, 1], "{name}");
            // One GPU is shown to each, or there is none.
            assert_eq!([of("3", 1), of("3", 0), of("x", 4)], [0, 0, 0], "{name}");
        }
    }

    #[test]
    fn devices_are_read_by_name_and_number() {
        for (text, choice) in [
            ("auto", Some(Choice::Auto)),
            ("cpu", Some(Choice::Cpu)),
            ("cuda", Some(Choice::Cuda(0))),
            ("cuda:3", Some(Choice::Cuda(3))),
            ("cuda:", None),
            ("cuda:x", None),
            ("gpu", None),
        ] {
            assert_eq!(text.parse::<Choice>().ok(), choice, "{text}");
        }
    }
}
