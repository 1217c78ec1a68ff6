//! Memory from the system: huge pages for large buffers, and the return of what was freed.
//!
//! A processor caches the translations of a few thousand pages. With 4 KiB pages that covers 8 MiB,
//! less than one matrix of activations, so every row access costs a page-table walk, and fresh
//! memory costs a fault per page. Pages of 2 MiB avoid both.

/// Buffers of fewer bytes than this are not worth a system call.
#[cfg(target_os = "linux")]
const SMALLEST: usize = 1 << 20;

/// Asks the system to back a buffer with huge pages. It may decline; only speed depends on it.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(crate) fn ask_for_large<T>(buffer: &mut [T]) {
    const PAGE: usize = 4096;
    let bytes = size_of_val(buffer);
    if bytes < SMALLEST {
        return;
    }
    let first = buffer.as_mut_ptr().addr();
    let (start, end) = (first.next_multiple_of(PAGE), (first + bytes) / PAGE * PAGE);
    let start = buffer.as_mut_ptr().cast::<u8>().wrapping_add(start - first);
    let length = end - start.addr();
    // SAFETY: the range covers whole pages inside an exclusively borrowed buffer, and the advice
    // does not change their contents.
    unsafe { libc::madvise(start.cast(), length, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn ask_for_large<T>(_: &mut [T]) {}

/// Makes the C library return blocks of 256 KiB or more to the system as soon as they are freed.
///
/// By default, glibc raises this limit to the size of the largest block freed so far, up to 32 MiB.
/// Blocks below it share a heap, in which one live block keeps freed ones resident. Training on
/// texts of varied lengths needed a quarter more memory that way.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn return_freed_memory() {
    // SAFETY: changes a parameter of the allocator, and no memory.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10) };
}

/// Other C libraries have no such parameter.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn return_freed_memory() {}
