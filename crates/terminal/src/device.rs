//! Device selection: `--device` and `--precision`.

use crate::output;
use clap::Args;
use std::str::FromStr;
use std::sync::Once;
use undertone::precision_of;
use undertone::run::PrecisionName;
use undertone::tensor::{CudaDevice, Device, Precision};

/// Device and precision to compute with.
#[derive(Args, Clone, Default)]
pub struct DeviceArguments {
    /// Device to use: `auto` selects an NVIDIA GPU if one is available, in turn for each process
    /// started by torchrun, mpirun or srun on a machine; `cuda:N` selects GPU N, counting from 0
    #[arg(long, value_name = "auto|cpu|cuda[:N]", default_value = "auto")]
    device: Choice,
    /// Precision of matrix products and activations [default: bf16 on a GPU, f32 on the CPU]
    #[arg(long, value_name = "f32|tf32|bf16", value_parser = precision)]
    precision: Option<PrecisionName>,
}

fn precision(text: &str) -> Result<PrecisionName, &'static str> {
    let named = PrecisionName::ALL.into_iter().find(|precision| precision.name() == text);
    named.ok_or("must be f32, tf32 or bf16")
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Choice {
    /// The first GPU if it can be used, otherwise the CPU.
    Auto,
    /// All cores.
    #[default]
    Cpu,
    /// The GPU with this ordinal.
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
                number.map(Self::Cuda).ok_or("must be auto, cpu, cuda or cuda:N")
            }
        }
    }
}

impl DeviceArguments {
    /// The same selection as arguments for another process of this program.
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

    /// The requested precision, if any.
    pub fn precision(&self) -> Option<PrecisionName> {
        self.precision
    }

    /// Whether a GPU is selected, which concurrent runs should not share.
    pub fn is_gpu(&self) -> bool {
        self.chosen().is_some()
    }

    /// Ordinal of the selected GPU; `None` for the CPU.
    fn chosen(&self) -> Option<usize> {
        match self.device {
            Choice::Cpu => None,
            Choice::Cuda(ordinal) => Some(ordinal),
            Choice::Auto => CudaDevice::open(own_gpu()).ok().map(|gpu| gpu.ordinal()),
        }
    }

    /// Opens the selected device.
    pub fn device(&self) -> Result<Device, undertone::model::Error> {
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
        let device = device.with_precision(self.precision.map_or(usual, precision_of));
        device.map_err(undertone::model::Error::from)
    }
}

/// Environment variables in which launchers pass the local rank: the index of a process on its
/// machine.
const PLACES_ON_MACHINE: [&str; 4] =
    ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// Ordinal of the GPU for this process: its local rank modulo the number of visible GPUs, or 0
/// without a launcher. If the launcher makes a single GPU visible to each process, this is 0 as
/// well.
fn own_gpu() -> usize {
    gpu_of_place(&|name| std::env::var(name).ok(), CudaDevice::count())
}

fn gpu_of_place(variable: &dyn Fn(&str) -> Option<String>, gpus: usize) -> usize {
    let number = |name: &&str| variable(name)?.trim().parse::<usize>().ok();
    PLACES_ON_MACHINE.iter().find_map(number).unwrap_or(0) % gpus.max(1)
}

/// A usable GPU, otherwise the CPU. The choice is printed once.
fn automatic() -> Device {
    static SAID: Once = Once::new();
    match CudaDevice::open(own_gpu()) {
        Ok(gpu) => {
            SAID.call_once(|| {
                output::note(format_args!("Using {} (use --device cpu to disable)", gpu.model()));
            });
            Device::Cuda(gpu)
        }
        Err(error) => {
            // Without a GPU, there is nothing to report.
            if CudaDevice::count() > 0 {
                SAID.call_once(|| {
                    output::note(format_args!(
                        "Using the CPU, since the GPU cannot be used: {error}"
                    ));
                });
            }
            Device::Cpu
        }
    }
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
            // Each process sees a single GPU, or none.
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
