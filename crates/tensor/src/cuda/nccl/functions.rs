//! The functions of NCCL, loaded at run time.
//!
//! They are declared here because cudarc looks for file names other than the one under which the
//! library is installed (`libnccl.so.2`), and aborts the program if a function is missing.

use super::super::library;
use crate::error::{Error, Result};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// A communicator.
pub type Communicator = *mut c_void;
/// A CUDA stream.
pub type Stream = *mut c_void;
/// The return status of a function.
pub type Status = c_int;

/// The call has completed.
pub const SUCCESS: Status = 0;
/// A call on a nonblocking communicator is still in progress.
pub const IN_PROGRESS: Status = 7;
/// The data type f32.
pub const FLOAT32: c_int = 7;

/// The identifier with which all ranks of a communicator start.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [u8; 128]);

/// Configuration of a communicator, as of NCCL 2.18: later versions recognize by its size and
/// version that their newer fields are not set.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster_size: c_int,
    fewest_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
}

impl Config {
    /// Nonblocking configuration: functions return before they complete, so that a rank that exits
    /// in the meantime is detected.
    pub fn not_blocking() -> Self {
        // NCCL's value for "not set".
        let unset = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: OLDEST,
            blocking: 0,
            cluster_size: unset,
            fewest_blocks: unset,
            most_blocks: unset,
            network: std::ptr::null(),
            split_share: unset,
            traffic_class: unset,
        }
    }
}

/// The oldest supported version, 2.18, in NCCL's numbering.
const OLDEST: c_uint = 21_800;

type Send =
    unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Communicator, Stream) -> Status;
type Receive =
    unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Communicator, Stream) -> Status;
type Gather =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Communicator, Stream) -> Status;
type Broadcast = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    c_int,
    c_int,
    Communicator,
    Stream,
) -> Status;
type Begin = unsafe extern "C" fn(*mut Communicator, c_int, UniqueId, c_int, *mut Config) -> Status;

/// The NCCL functions in use.
pub struct Functions {
    pub unique_id: unsafe extern "C" fn(*mut UniqueId) -> Status,
    pub begin: Begin,
    pub state: unsafe extern "C" fn(Communicator, *mut Status) -> Status,
    pub abort: unsafe extern "C" fn(Communicator) -> Status,
    pub end: unsafe extern "C" fn(Communicator) -> Status,
    pub group_start: unsafe extern "C" fn() -> Status,
    pub group_end: unsafe extern "C" fn() -> Status,
    pub send: Send,
    pub receive: Receive,
    pub all_gather: Gather,
    pub broadcast: Broadcast,
    words: unsafe extern "C" fn(Status) -> *const c_char,
    version: c_uint,
}

impl Functions {
    /// Loads the library's functions; an error is one sentence that says how to get it.
    pub fn find() -> Result<&'static Self> {
        static FOUND: OnceLock<std::result::Result<Functions, String>> = OnceLock::new();
        match FOUND.get_or_init(Self::load) {
            Ok(functions) => Ok(functions),
            Err(sentence) => Err(Error::NoGpu(sentence.clone())),
        }
    }

    fn load() -> std::result::Result<Self, String> {
        let Some(library) = library::optional(&["libnccl.so.2", "libnccl.so"]) else {
            return Err("NCCL was not found: `pip install nvidia-nccl-cu13` (or -cu12), or name \
                        its folder in UNDERTONE_CUDA"
                .to_owned());
        };
        // SAFETY: the types match nccl.h and have not changed since the oldest supported version;
        // the library is never unloaded.
        let functions = unsafe { Self::of(&library) };
        std::mem::forget(library);
        let functions =
            functions.ok_or("the NCCL that was found lacks functions: use a newer version")?;
        match functions.version {
            old if old < OLDEST => Err(format!(
                "NCCL {} is too old: version {} or a later one is needed",
                spelled(old),
                spelled(OLDEST)
            )),
            _ => Ok(functions),
        }
    }

    /// # Safety
    /// The library must be NCCL and never be unloaded.
    unsafe fn of(library: &libloading::Library) -> Option<Self> {
        /// # Safety
        /// The function with this name must have the type `F`.
        unsafe fn get<F: Copy>(library: &libloading::Library, name: &str) -> Option<F> {
            // SAFETY: guaranteed by the caller.
            unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|function| *function)
        }
        // SAFETY: the types match nccl.h; the pointer points to an integer that outlives the call.
        unsafe {
            let version: unsafe extern "C" fn(*mut c_int) -> Status =
                get(library, "ncclGetVersion")?;
            let mut number = 0;
            if version(&mut number) != SUCCESS {
                return None;
            }
            Some(Self {
                unique_id: get(library, "ncclGetUniqueId")?,
                begin: get(library, "ncclCommInitRankConfig")?,
                state: get(library, "ncclCommGetAsyncError")?,
                abort: get(library, "ncclCommAbort")?,
                end: get(library, "ncclCommDestroy")?,
                group_start: get(library, "ncclGroupStart")?,
                group_end: get(library, "ncclGroupEnd")?,
                send: get(library, "ncclSend")?,
                receive: get(library, "ncclRecv")?,
                all_gather: get(library, "ncclAllGather")?,
                broadcast: get(library, "ncclBroadcast")?,
                words: get(library, "ncclGetErrorString")?,
                version: number.unsigned_abs(),
            })
        }
    }

    /// The version in its usual notation.
    pub fn version(&self) -> String {
        spelled(self.version)
    }

    /// NCCL's description of a status.
    pub fn words(&self, status: Status) -> String {
        // SAFETY: NCCL returns a constant string for every status.
        let words = unsafe { (self.words)(status) };
        if words.is_null() {
            return format!("status {status}");
        }
        // SAFETY: the string is null-terminated and lives as long as the library.
        unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
    }
}

/// 21807 is 2.18.7.
fn spelled(version: c_uint) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_as_people_do() {
        assert_eq!((spelled(OLDEST), spelled(23_007)), ("2.18.0".to_owned(), "2.30.7".to_owned()));
    }

    /// The size that nccl.h implies on 64-bit systems.
    #[test]
    fn settings_are_as_large_as_nccl_expects() {
        assert_eq!((size_of::<Config>(), size_of::<UniqueId>()), (48, 128));
        assert_eq!(std::mem::offset_of!(Config, network), 32);
    }

    #[test]
    fn where_there_is_none_one_sentence_says_how_to_get_it() {
        if let Err(error) = Functions::find() {
            let sentence = error.to_string();
            assert!(sentence.contains("NCCL") && !sentence.contains('\n'), "{sentence}");
        }
    }
}
