//! Compiles kernels with NVRTC, and stores the machine code in the user's cache folder.
//!
//! The name of a cache file contains everything that determines its contents: the hash of the
//! source and the compiler options, the GPU's compute capability and the version of NVRTC. The file
//! starts with the hash of the rest; a damaged file is recompiled and overwritten.

use super::library::Library;
use super::source::Source;
use crate::error::{Error, Result};
use cudarc::nvrtc::{result, sys};
use sha2::{Digest, Sha256};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Major and minor compute capability of a GPU.
pub type Capability = (i32, i32);

/// Machine code that the driver loads.
pub fn image(source: Source, capability: Capability) -> Result<Vec<u8>> {
    Library::Nvrtc.load()?;
    let file = cache_folder(&|name| std::env::var_os(name).map(PathBuf::from))
        .map(|folder| folder.join(file_name(source, capability, version())));
    if let Some(image) = file.as_deref().and_then(read) {
        return Ok(image);
    }
    let image = compile(source, capability)?;
    if let Some(file) = file {
        // Failing to write the cache only costs time.
        let _ = write(&file, &image);
    }
    Ok(image)
}

/// Removes a cache file that the driver does not accept.
pub fn forget(source: Source, capability: Capability) {
    let folder = cache_folder(&|name| std::env::var_os(name).map(PathBuf::from));
    if let Some(folder) = folder {
        let _ = std::fs::remove_file(folder.join(file_name(source, capability, version())));
    }
}

/// The folder for compiled kernels in the user's cache, if there is one.
fn cache_folder(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let cache = variable("XDG_CACHE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| variable("LOCALAPPDATA").filter(|_| cfg!(windows)))
        .or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(cache.join("undertone").join("kernels"))
}

fn file_name(source: Source, (major, minor): Capability, version: (i32, i32)) -> String {
    let text = format!("{}\n{}", source.options().join(" "), source.text());
    let hash: String =
        Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let (compiler, minor_compiler) = version;
    format!("{}-{hash}-sm_{major}{minor}-nvrtc{compiler}.{minor_compiler}.bin", source.name())
}

const HASH: usize = 32;

/// The image in a cache file, unless it is damaged.
fn read(file: &Path) -> Option<Vec<u8>> {
    let mut contents = std::fs::read(file).ok()?;
    let image = contents.split_off(contents.len().min(HASH));
    (contents == Sha256::digest(&image).as_slice() && !image.is_empty()).then_some(image)
}

/// Writes a cache file atomically, so that no reader sees a partial file.
fn write(file: &Path, image: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut contents = Sha256::digest(image).to_vec();
    contents.extend_from_slice(image);
    let thread = format!("{:?}", std::thread::current().id());
    let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
    let temporary = file.with_extension(format!("{}-{thread}.tmp", std::process::id()));
    std::fs::write(&temporary, contents)?;
    std::fs::rename(&temporary, file)
}

/// Major and minor version of the loaded NVRTC.
pub fn version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers point to integers that outlive the call.
    let _ = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    (major, minor)
}

fn failed(error: result::NvrtcError) -> Error {
    Error::Device(Box::new(error))
}

/// The newest architecture that the compiler supports and this GPU can run.
fn architecture(capability: Capability) -> Result<i32> {
    let mut count = 0;
    // SAFETY: the pointer points to an integer that outlives the call.
    unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) }.result().map_err(failed)?;
    let mut known = vec![0; usize::try_from(count).unwrap_or_default()];
    // SAFETY: the buffer has room for the number of entries that the compiler reported.
    unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) }.result().map_err(failed)?;
    let own = 10 * capability.0 + capability.1;
    known.into_iter().filter(|&known| known <= own).max().ok_or_else(|| {
        let (major, minor) = version();
        Error::NoGpu(format!(
            "NVRTC {major}.{minor} does not compile for GPUs of compute capability {}.{}: use an \
             older version",
            capability.0, capability.1
        ))
    })
}

/// Machine code for this GPU or, from a compiler that is older than the GPU, PTX that the driver
/// compiles.
pub fn compile(source: Source, capability: Capability) -> Result<Vec<u8>> {
    let architecture = architecture(capability)?;
    let exact = architecture == 10 * capability.0 + capability.1;
    let kind = if exact { "sm" } else { "compute" };
    let mut options = vec![format!("--gpu-architecture={kind}_{architecture}")];
    options.extend(source.options().iter().map(|option| option.to_string()));
    let text = CString::new(source.text()).expect("a source has no zero byte");
    let name = CString::new(format!("{}.cu", source.name())).expect("a name has no zero byte");
    let program = result::create_program(&text, Some(&name)).map_err(failed)?;
    // SAFETY: the program has just been created and is not destroyed yet.
    let compiled = unsafe { result::compile_program(program, &options) };
    let image = match compiled {
        // SAFETY: the program is compiled and not destroyed yet.
        Ok(()) if exact => unsafe { machine_code(program) },
        // SAFETY: the program is compiled and not destroyed yet.
        Ok(()) => unsafe { result::get_ptx(program) }
            .map(|text| text.into_iter().map(|c| c as u8).collect())
            .map_err(failed),
        Err(error) => {
            // SAFETY: the program is not destroyed yet.
            let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
            let log: Vec<u8> = log.into_iter().map(|c| c as u8).take_while(|&c| c != 0).collect();
            let log = String::from_utf8_lossy(&log).into_owned();
            let name = source.name();
            Err(Error::Device(format!("the kernels of {name}: {error}: {log}").into()))
        }
    };
    // SAFETY: the program was created above and is not used again.
    let _ = unsafe { result::destroy_program(program) };
    image
}

/// # Safety
/// The program must have been compiled for one architecture and not be destroyed.
unsafe fn machine_code(program: sys::nvrtcProgram) -> Result<Vec<u8>> {
    let mut size = 0;
    // SAFETY: the caller guarantees that the program is valid; the pointer points to an integer
    // that outlives the call.
    unsafe { sys::nvrtcGetCUBINSize(program, &mut size) }.result().map_err(failed)?;
    let mut image = vec![0_u8; size];
    // SAFETY: the buffer has room for the number of bytes that the compiler reported.
    unsafe { sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()) }.result().map_err(failed)?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::super::format::NumberFormat;
    use super::*;
    use crate::Precision;

    #[test]
    fn a_name_tells_source_capability_and_compiler_apart() {
        let names = [
            file_name(Source::Norm(NumberFormat::F32), (9, 0), (13, 0)),
            file_name(Source::Rows(NumberFormat::F32), (9, 0), (13, 0)),
            file_name(Source::Norm(NumberFormat::F32), (8, 9), (13, 0)),
            file_name(Source::Norm(NumberFormat::F32), (9, 0), (12, 9)),
            file_name(Source::Attention(Precision::F32, 64), (9, 0), (13, 0)),
            file_name(Source::Attention(Precision::F32, 128), (9, 0), (13, 0)),
        ];
        for (i, name) in names.iter().enumerate() {
            assert!(names[i + 1..].iter().all(|other| name != other), "{name}");
        }
        assert!(names[0].starts_with("norm-float-") && names[0].ends_with("-sm_90-nvrtc13.0.bin"));
        assert_eq!(names[0], file_name(Source::Norm(NumberFormat::F32), (9, 0), (13, 0)));
    }

    #[test]
    fn the_cache_is_in_the_users_cache_folder() {
        let variable = |wanted: &'static str, value: &'static str| {
            move |name: &str| (name == wanted).then(|| PathBuf::from(value))
        };
        let end = Path::new("undertone/kernels");
        assert_eq!(
            cache_folder(&variable("XDG_CACHE_HOME", "/cache")),
            Some(Path::new("/cache").join(end))
        );
        assert_eq!(
            cache_folder(&variable("HOME", "/home/a")),
            Some(Path::new("/home/a/.cache").join(end))
        );
        assert_eq!(cache_folder(&|_| None), None);
    }

    #[test]
    fn a_damaged_file_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kernels").join("norm.bin");
        assert_eq!(read(&file), None);
        write(&file, b"machine code").unwrap();
        assert_eq!(read(&file).as_deref(), Some(&b"machine code"[..]));
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        let whole = std::fs::read(&file).unwrap();
        for damaged in [&whole[..20], &whole[..HASH], &whole[..whole.len() - 1], &[]] {
            std::fs::write(&file, damaged).unwrap();
            assert_eq!(read(&file), None);
        }
        let mut changed = whole;
        *changed.last_mut().unwrap() ^= 1;
        std::fs::write(&file, changed).unwrap();
        assert_eq!(read(&file), None);
    }

    /// Runs where NVRTC is installed; needs no GPU.
    #[test]
    fn every_kernel_compiles() {
        if Library::Nvrtc.load().is_err() {
            eprintln!("NVRTC is not installed: nothing is compiled");
            return;
        }
        for source in Source::all() {
            let image = compile(source, (9, 0)).unwrap_or_else(|error| panic!("{error}"));
            assert!(!image.is_empty(), "{source:?}");
        }
    }
}
