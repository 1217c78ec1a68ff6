//! GPU memory, allocated and freed in stream order, and copies to and from it.

use super::device::{Gpu, failed, lock};
use crate::error::{Error, Result};
use bytemuck::Pod;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::CUresult;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A GPU allocation; freed when the last owner is dropped, after the stream has finished using it.
pub struct Buffer {
    gpu: &'static Gpu,
    pointer: u64,
    bytes: usize,
    /// The same f32 values rounded to bf16, once a product has needed them.
    rounded: Mutex<Option<Arc<Buffer>>>,
}

impl Buffer {
    /// Address on the GPU; 0 if the buffer is empty.
    pub fn pointer(&self) -> u64 {
        self.pointer
    }

    /// The GPU that holds the buffer.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The same f32 values rounded to bf16: computed once and cached until [`Self::changes`].
    pub fn rounded(&self, round: impl FnOnce() -> Result<Buffer>) -> Result<Arc<Buffer>> {
        let mut rounded = lock(&self.rounded);
        match &*rounded {
            Some(buffer) => Ok(buffer.clone()),
            None => Ok(rounded.insert(Arc::new(round()?)).clone()),
        }
    }

    /// The address of the rounded values, if they exist and are not shared.
    pub fn rounded_alone(&mut self) -> Option<u64> {
        let rounded = self.rounded.get_mut().unwrap_or_else(PoisonError::into_inner);
        rounded.as_mut().and_then(Arc::get_mut).map(|buffer| buffer.pointer)
    }

    /// Invalidates the rounded values: the buffer is about to change.
    pub fn changes(&mut self) {
        *self.rounded.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.pointer)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.pointer == 0 {
            return;
        }
        if let Ok(stream) = self.gpu.stream() {
            // SAFETY: the memory was allocated on this stream, and only operations enqueued earlier
            // still use its address.
            let _ = unsafe { result::free_async(self.pointer, stream.cu_stream()) };
        }
    }
}

/// The out-of-memory error.
fn full(gpu: &Gpu, bytes: usize) -> Error {
    let mebibytes = |bytes: usize| bytes.div_ceil(1 << 20);
    let (free, all) = gpu.memory().unwrap_or_default();
    Error::OutOfMemory { needed: mebibytes(bytes), free: mebibytes(free), all: mebibytes(all) }
}

impl Gpu {
    /// Allocates `bytes` bytes with arbitrary contents.
    pub fn allocate(&'static self, bytes: usize) -> Result<Buffer> {
        if bytes == 0 {
            return Ok(Buffer { gpu: self, pointer: 0, bytes, rounded: Mutex::default() });
        }
        let stream = self.stream()?;
        // SAFETY: the stream is open. Nothing reads the bytes before they are written: every kernel
        // writes all of its output.
        match unsafe { result::malloc_async(stream.cu_stream(), bytes) } {
            Ok(pointer) => Ok(Buffer { gpu: self, pointer, bytes, rounded: Mutex::default() }),
            Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Err(full(self, bytes)),
            Err(error) => Err(failed("allocating memory", error)),
        }
    }

    /// Allocates `bytes` zero bytes.
    pub fn zeros(&'static self, bytes: usize) -> Result<Buffer> {
        let buffer = self.allocate(bytes)?;
        if bytes > 0 {
            // SAFETY: the buffer has this many bytes.
            unsafe {
                result::memset_d8_async(buffer.pointer, 0, bytes, self.stream()?.cu_stream())
            }
            .map_err(|error| failed("writing zeros", error))?;
        }
        Ok(buffer)
    }

    /// Copies values to the GPU. Small copies do not wait for the GPU.
    pub fn upload<T: Pod>(&'static self, numbers: &[T]) -> Result<Buffer> {
        let bytes: &[u8] = bytemuck::cast_slice(numbers);
        let buffer = self.allocate(bytes.len())?;
        if bytes.is_empty() {
            return Ok(buffer);
        }
        let copying = |error| failed("copying to the GPU", error);
        let stream = self.stream()?.cu_stream();
        let mut staging = lock(&self.staging);
        match staging.take(self, bytes.len())? {
            Some(pinned) => {
                pinned.copy_from_slice(bytes);
                // SAFETY: both sides have the same number of bytes, and the pinned ones are not
                // written again before the stream has been synchronized.
                unsafe { result::memcpy_htod_async(buffer.pointer, pinned, stream) }
                    .map_err(copying)?;
            }
            None => {
                // SAFETY: both sides have the same number of bytes, and the host's side is borrowed
                // until the copy is done.
                unsafe { result::memcpy_htod_async(buffer.pointer, bytes, stream) }
                    .map_err(copying)?;
                self.synchronize()?;
            }
        }
        Ok(buffer)
    }

    /// Like [`Self::upload`], for values that recur within a step, such as the rows of each unit:
    /// values that are already on the GPU are not copied again.
    pub fn constant<T: Pod>(&'static self, numbers: &[T]) -> Result<Arc<Buffer>> {
        let bytes: &[u8] = bytemuck::cast_slice(numbers);
        if let Some(known) = lock(&self.constants).get(bytes) {
            return Ok(known);
        }
        let buffer = Arc::new(self.upload(numbers)?);
        lock(&self.constants).insert(bytes, buffer.clone());
        Ok(buffer)
    }

    /// Copies values from an address on this GPU, once they are computed.
    ///
    /// # Safety
    /// The address must hold as many values as `numbers`.
    pub unsafe fn download<T: Pod>(&self, pointer: u64, numbers: &mut [T]) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let stream = self.stream()?.cu_stream();
        // SAFETY: the caller guarantees that the address is valid; the host's side is borrowed
        // until the copy is done.
        unsafe { result::memcpy_dtoh_async(numbers, pointer, stream) }
            .map_err(|error| failed("copying from the GPU", error))?;
        self.synchronize()
    }

    /// Copies bytes within this GPU.
    ///
    /// # Safety
    /// Both addresses must be valid for `bytes` bytes, and the two ranges must not overlap.
    pub unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: guaranteed by the caller.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream()?.cu_stream()) }
            .map_err(|error| failed("copying on the GPU", error))
    }
}

/// Small arrays that are already on the GPU, most recently used last.
#[derive(Default)]
pub struct Constants {
    known: Vec<(Box<[u8]>, Arc<Buffer>)>,
}

impl Constants {
    /// Maximum number of cached arrays.
    const COUNT: usize = 24;

    fn get(&mut self, bytes: &[u8]) -> Option<Arc<Buffer>> {
        let place = self.known.iter().position(|(known, _)| **known == *bytes)?;
        let entry = self.known.remove(place);
        let buffer = entry.1.clone();
        self.known.push(entry);
        Some(buffer)
    }

    fn insert(&mut self, bytes: &[u8], buffer: Arc<Buffer>) {
        if self.known.len() == Self::COUNT {
            self.known.remove(0);
        }
        self.known.push((bytes.into(), buffer));
    }
}

/// Pinned host memory through which small copies go: the GPU may read it after the call that
/// requested the copy has returned.
pub struct Staging {
    memory: &'static mut [u8],
    used: usize,
}

impl Staging {
    /// Size in bytes. Small copies wait for the stream once per this many bytes.
    const BYTES: usize = 16 << 20;

    pub fn new() -> Result<Self> {
        // SAFETY: the memory is never freed, and any byte values are valid; they are set to 0
        // before anything reads them.
        let memory = unsafe {
            let start = result::malloc_host(Self::BYTES, 0)
                .map_err(|error| failed("allocating pinned memory", error))?
                .cast::<u8>();
            start.write_bytes(0, Self::BYTES);
            std::slice::from_raw_parts_mut(start, Self::BYTES)
        };
        Ok(Self { memory, used: 0 })
    }

    /// Room for `bytes` bytes that no earlier copy still uses; `None` if that is too much.
    fn take(&mut self, gpu: &Gpu, bytes: usize) -> Result<Option<&mut [u8]>> {
        if bytes > Self::BYTES / 4 {
            return Ok(None);
        }
        if self.used + bytes > Self::BYTES {
            gpu.synchronize()?;
            self.used = 0;
        }
        let start = self.used;
        // Copies start at multiples of 256 bytes.
        self.used = (start + bytes).next_multiple_of(256);
        Ok(self.memory.get_mut(start..start + bytes))
    }
}
