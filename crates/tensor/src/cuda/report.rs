//! Report of the GPUs and libraries on this machine, and of what is missing.

use super::library::Library;
use super::{compile, device};
use cudarc::{cublas, driver};
use std::path::PathBuf;

/// The GPUs and CUDA libraries of this machine.
#[derive(Clone, Debug)]
pub struct CudaReport {
    /// All GPUs that the driver reports.
    pub gpus: Vec<GpuReport>,
    /// The libraries that are available.
    pub libraries: Vec<FoundLibrary>,
    /// What is missing, as sentences that say how to get it.
    pub missing: Vec<String>,
}

/// One GPU.
#[derive(Clone, Debug)]
pub struct GpuReport {
    /// Its model.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Major and minor compute capability.
    pub compute_capability: (i32, i32),
}

/// An available CUDA library.
#[derive(Clone, Debug)]
pub struct FoundLibrary {
    /// The library's name.
    pub name: &'static str,
    /// Its version.
    pub version: Option<String>,
    /// The library's file, if the system reports it.
    pub path: Option<PathBuf>,
}

impl CudaReport {
    /// Looks for GPUs and libraries without opening a GPU.
    pub fn new() -> Self {
        let mut report = Self { gpus: Vec::new(), libraries: Vec::new(), missing: Vec::new() };
        for library in Library::ALL {
            match library.load() {
                Ok(()) => {
                    let version = version(library);
                    let path = library.paths().into_iter().next();
                    report.libraries.push(FoundLibrary { name: library.name(), version, path });
                }
                Err(error) => report.missing.push(error.to_string()),
            }
        }
        if Library::Driver.load().is_ok() {
            match device::count() {
                Ok(0) => report.missing.push("the NVIDIA driver finds no GPU".to_owned()),
                Ok(count) => report.gpus.extend((0..count).filter_map(|ordinal| {
                    let (name, memory, compute_capability) = device::describe(ordinal).ok()?;
                    Some(GpuReport { name, memory, compute_capability })
                })),
                Err(error) => report.missing.push(error.to_string()),
            }
        }
        report
    }

    /// Whether a GPU can be used.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && !self.gpus.is_empty()
    }
}

impl Default for CudaReport {
    fn default() -> Self {
        Self::new()
    }
}

/// Versions of driver, compiler and cuBLAS: other versions may round differently.
pub(super) fn versions() -> String {
    let named = Library::ALL
        .iter()
        .filter_map(|&library| Some(format!("{} {}", library.name(), version(library)?)));
    named.collect::<Vec<_>>().join(", ")
}

/// The version of a loaded library. For the driver, the newest CUDA version that it supports.
fn version(library: Library) -> Option<String> {
    match library {
        Library::Driver => {
            let mut version = 0;
            // SAFETY: the driver is loaded; the pointer points to an integer that outlives the
            // call.
            unsafe { driver::sys::cuDriverGetVersion(&mut version) }.result().ok()?;
            Some(format!("CUDA {}.{}", version / 1000, version % 1000 / 10))
        }
        Library::Nvrtc => {
            let (major, minor) = compile::version();
            Some(format!("{major}.{minor}"))
        }
        Library::CublasLt => None,
        Library::Cublas => {
            use cublas::sys::libraryPropertyType as Part;
            let part = |part| {
                let mut number = 0;
                // SAFETY: cuBLAS is loaded; the pointer points to an integer that outlives the
                // call.
                unsafe { cublas::sys::cublasGetProperty(part, &mut number) }.result().ok()?;
                Some(number)
            };
            let (major, minor) = (part(Part::MAJOR_VERSION)?, part(Part::MINOR_VERSION)?);
            Some(format!("{major}.{minor}.{}", part(Part::PATCH_LEVEL)?))
        }
    }
}
