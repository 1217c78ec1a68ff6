//! What there is to compute with on this machine: GPUs, libraries, and what is missing.

use super::library::Library;
use super::{compile, device};
use cudarc::{cublas, driver};
use std::path::PathBuf;

/// GPUs and the libraries of CUDA, as they were found.
#[derive(Clone, Debug)]
pub struct CudaReport {
    /// All GPUs that the driver names.
    pub gpus: Vec<GpuReport>,
    /// The libraries that were found.
    pub libraries: Vec<FoundLibrary>,
    /// What is missing, each in one sentence that says how to get it.
    pub missing: Vec<String>,
}

/// One GPU.
#[derive(Clone, Debug)]
pub struct GpuReport {
    /// Its model.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Major and minor number of its compute capability.
    pub compute_capability: (i32, i32),
}

/// A library of CUDA that was found.
#[derive(Clone, Debug)]
pub struct FoundLibrary {
    /// What it is.
    pub name: &'static str,
    /// Its version.
    pub version: Option<String>,
    /// Its file, where the system says which.
    pub path: Option<PathBuf>,
}

impl CudaReport {
    /// Looks for everything; opens no GPU.
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

/// Driver, compiler and cuBLAS with their versions: another of them may round otherwise.
pub(super) fn versions() -> String {
    let named = Library::ALL
        .iter()
        .filter_map(|&library| Some(format!("{} {}", library.name(), version(library)?)));
    named.collect::<Vec<_>>().join(", ")
}

/// The version of a library that is loaded. The driver's is that of CUDA up to which it goes.
fn version(library: Library) -> Option<String> {
    match library {
        Library::Driver => {
            let mut version = 0;
            // SAFETY: the driver is loaded; the pointer is to a number that lives as long as the
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
                // SAFETY: cuBLAS is loaded; the pointer is to a number that lives as long as the
                // call.
                unsafe { cublas::sys::cublasGetProperty(part, &mut number) }.result().ok()?;
                Some(number)
            };
            let (major, minor) = (part(Part::MAJOR_VERSION)?, part(Part::MINOR_VERSION)?);
            Some(format!("{major}.{minor}.{}", part(Part::PATCH_LEVEL)?))
        }
    }
}
