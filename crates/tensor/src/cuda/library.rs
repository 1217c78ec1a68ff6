//! Finds and loads the CUDA libraries at run time.
//!
//! They are searched for in this order:
//!
//! 1. the folder `UNDERTONE_CUDA`, and `lib64`, `lib` and `*/lib` in it;
//! 2. `lib64` and `lib` in `CUDA_HOME` and `CUDA_PATH`;
//! 3. the search path of the system's loader (`LD_LIBRARY_PATH`, `/etc/ld.so.conf`);
//! 4. NVIDIA's packages in a Python environment, `site-packages/nvidia/*/lib`, as installed with
//!    PyTorch: in the active environment, that of the `python3` on the path, the user's and the
//!    system's;
//! 5. `/usr/local/cuda/lib64`.
//!
//! The driver is installed with the GPU and is always on the search path of the system's loader.

use crate::error::{Error, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A library that is required to compute on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The CUDA driver.
    Driver,
    /// The kernel compiler.
    Nvrtc,
    /// Matrix products; cuBLAS depends on it.
    CublasLt,
    /// Matrix products.
    Cublas,
}

impl Library {
    /// All libraries, each after its dependencies.
    pub const ALL: [Self; 4] = [Self::Driver, Self::Nvrtc, Self::CublasLt, Self::Cublas];

    /// The library's common name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Driver => "the NVIDIA driver",
            Self::Nvrtc => "NVRTC",
            Self::CublasLt => "cuBLASLt",
            Self::Cublas => "cuBLAS",
        }
    }

    /// The part of its file name between `lib` and `.so`.
    fn stem(self) -> &'static str {
        match self {
            Self::Driver => "cuda",
            Self::Nvrtc => "nvrtc",
            Self::CublasLt => "cublasLt",
            Self::Cublas => "cublas",
        }
    }

    /// The candidate file names, newest version first.
    fn file_names(self) -> Vec<String> {
        let stem = self.stem();
        if cfg!(windows) {
            return match self {
                Self::Driver => vec!["nvcuda.dll".into()],
                Self::Nvrtc => vec!["nvrtc64_130_0.dll".into(), "nvrtc64_120_0.dll".into()],
                _ => vec![format!("{stem}64_13.dll"), format!("{stem}64_12.dll")],
            };
        }
        match self {
            Self::Driver => vec!["libcuda.so.1".into(), "libcuda.so".into()],
            _ => ["so.13", "so.12", "so"].map(|end| format!("lib{stem}.{end}")).into(),
        }
    }

    /// The error message if the library is missing, in one sentence.
    fn missing(self) -> String {
        let name = self.name();
        match self {
            Self::Driver => {
                format!(
                    "{name} was not found: a GPU needs it (nvidia.com/drivers); or compute on the \
                     CPU"
                )
            }
            Self::Nvrtc => format!(
                "{name} was not found: `pip install nvidia-cuda-nvrtc`, install the CUDA toolkit, \
                 or name its folder in UNDERTONE_CUDA"
            ),
            Self::CublasLt | Self::Cublas => format!(
                "{name} was not found: `pip install nvidia-cublas`, install the CUDA toolkit, or \
                 name its folder in UNDERTONE_CUDA"
            ),
        }
    }

    /// Loads the library if it is not loaded yet; an error is one sentence that says how to get it.
    pub fn load(self) -> Result<()> {
        static LOADED: [OnceLock<bool>; 4] = [const { OnceLock::new() }; 4];
        let place = Self::ALL.iter().position(|&library| library == self).unwrap_or_default();
        if *LOADED[place].get_or_init(|| self.find()) {
            return Ok(());
        }
        Err(Error::NoGpu(self.missing()))
    }

    /// Finds and loads the library permanently, and returns whether that succeeded. cudarc asks for
    /// libraries by name and gets the one that is already in memory.
    fn find(self) -> bool {
        let search = Search::new(&|name| std::env::var_os(name));
        let names = self.file_names();
        let inside = |folders: &[PathBuf]| {
            let mut files = folders.iter().flat_map(|folder| names.iter().map(|n| folder.join(n)));
            files.any(|file| file.is_file() && open(&file))
        };
        if self == Self::Driver {
            return names.iter().any(|name| open(Path::new(name)));
        }
        inside(&search.chosen)
            || names.iter().any(|name| open(Path::new(name)))
            || inside(&search.usual)
    }

    /// The files of this library that are loaded.
    pub fn paths(self) -> Vec<PathBuf> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let start = format!("lib{}.so", self.stem());
        let mut paths: Vec<PathBuf> = maps
            .lines()
            .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])))
            .filter(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start))
            })
            .collect();
        paths.dedup();
        paths
    }
}

/// Loads a library that is not required for a single GPU, by its file names, from the same places
/// as the others.
pub fn optional(names: &[&str]) -> Option<libloading::Library> {
    let search = Search::new(&|name| std::env::var_os(name));
    // SAFETY: as in `open`.
    let open = |file: &Path| unsafe { libloading::Library::new(file) }.ok();
    let inside = |folders: &[PathBuf]| {
        let files = folders.iter().flat_map(|folder| names.iter().map(|n| folder.join(n)));
        files.filter(|file| file.is_file()).find_map(|file| open(&file))
    };
    inside(&search.chosen)
        .or_else(|| names.iter().find_map(|name| open(Path::new(name))))
        .or_else(|| inside(&search.usual))
}

/// Loads a library permanently.
fn open(file: &Path) -> bool {
    // NVRTC opens a second library by name, which lies next to it.
    let builtins = file.parent().map(|folder| children(folder, "libnvrtc-builtins.so"));
    let is_compiler = file.file_name().is_some_and(|name| {
        let name = name.to_string_lossy();
        name.starts_with("libnvrtc.so")
    });
    if is_compiler {
        for builtins in builtins.into_iter().flatten() {
            // SAFETY: as below.
            if let Ok(library) = unsafe { libloading::Library::new(builtins) } {
                std::mem::forget(library);
            }
        }
    }
    // SAFETY: loading the CUDA libraries has no side effects that are visible to this program.
    match unsafe { libloading::Library::new(file) } {
        Ok(library) => {
            std::mem::forget(library);
            true
        }
        Err(_) => false,
    }
}

/// Folders to search for libraries.
#[derive(Debug, PartialEq, Eq)]
struct Search {
    /// Searched before the system's loader.
    chosen: Vec<PathBuf>,
    /// Searched after the system's loader.
    usual: Vec<PathBuf>,
}

impl Search {
    /// The folders given by environment variables.
    fn new(variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let path = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let mut chosen = Vec::new();
        if let Some(folder) = path("UNDERTONE_CUDA") {
            chosen.extend([folder.clone(), folder.join("lib64"), folder.join("lib")]);
            chosen.extend(children(&folder, "").into_iter().map(|child| child.join("lib")));
        }
        for folder in ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(path) {
            chosen.extend([folder.join("lib64"), folder.join("lib")]);
        }
        let mut usual = Vec::new();
        for packages in site_packages(variable) {
            let nvidia = children(&packages.join("nvidia"), "");
            usual.extend(nvidia.into_iter().map(|package| package.join("lib")));
        }
        usual.push("/usr/local/cuda/lib64".into());
        for folders in [&mut chosen, &mut usual] {
            folders.retain(|folder| folder.is_dir());
        }
        Self { chosen, usual }
    }
}

/// The folders of Python packages: the active environment's first, then those of `python3`, the
/// user and the system.
fn site_packages(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(variable)
        .map(PathBuf::from)
        .collect();
    let folders = variable("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    for folder in folders.into_iter().flatten() {
        let python = folder.join("python3");
        for file in [Some(python.clone()), python.canonicalize().ok()].into_iter().flatten() {
            let prefix = file.parent().and_then(Path::parent);
            prefixes.extend(prefix.filter(|_| file.is_file()).map(Path::to_path_buf));
        }
    }
    prefixes.extend(variable("HOME").map(|home| Path::new(&home).join(".local")));
    prefixes.extend(["/usr/local".into(), "/usr".into()]);
    let mut folders = Vec::new();
    for prefix in prefixes {
        for python in children(&prefix.join("lib"), "python3") {
            folders.extend(["site-packages", "dist-packages"].map(|name| python.join(name)));
        }
    }
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

/// The entries of a folder whose names start with `start`, in descending order.
fn children(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut children: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .map(|entry| entry.path())
        .collect();
    children.sort_by(|a, b| b.cmp(a));
    children
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::create_dir_all;

    #[test]
    fn folders_are_searched_in_the_documented_order() {
        let root = tempfile::tempdir().unwrap();
        let folder = |path: &str| {
            let folder = root.path().join(path);
            create_dir_all(&folder).unwrap();
            folder
        };
        let own = [folder("own"), folder("own/lib"), folder("own/cublas/lib")];
        let toolkit = folder("toolkit/lib64");
        let packages = [
            folder("venv/lib/python3.12/site-packages/nvidia/cu13/lib"),
            folder("venv/lib/python3.12/site-packages/nvidia/cublas/lib"),
        ];
        let user = folder("home/.local/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib");
        let search = Search::new(&|name| {
            let path = match name {
                "UNDERTONE_CUDA" => "own",
                "CUDA_HOME" => "toolkit",
                "VIRTUAL_ENV" => "venv",
                "HOME" => "home",
                _ => return None,
            };
            Some(root.path().join(path).into())
        });
        let chosen: Vec<PathBuf> = own.iter().chain(std::iter::once(&toolkit)).cloned().collect();
        assert_eq!(search.chosen.iter().filter(|f| !f.ends_with("lib/lib")).count(), chosen.len());
        assert!(chosen.iter().all(|folder| search.chosen.contains(folder)));
        assert_eq!(search.chosen.last(), Some(&toolkit));
        let expected = [packages[1].clone(), packages[0].clone(), user];
        let ours: Vec<_> =
            search.usual.iter().filter(|f| f.starts_with(root.path())).cloned().collect();
        assert_eq!(ours, expected);
    }

    #[test]
    fn nothing_is_searched_where_nothing_is() {
        let search = Search::new(&|_| None);
        assert!(search.chosen.is_empty());
    }

    #[test]
    fn a_missing_library_is_one_sentence_with_a_remedy() {
        for library in Library::ALL {
            let sentence = library.missing();
            assert!(sentence.starts_with(library.name()) && sentence.contains(": "));
            assert!(!sentence.contains('\n'));
        }
    }
}
