//! Large pages for large buffers.
//!
//! A processor remembers where a few thousand pages lie. With pages of 4 KiB these are 8 MiB, less
//! than one matrix of activations, so that every row of one costs a walk through the page table,
//! and fresh memory a fault for each page. Pages of 2 MiB cost neither.

/// Buffers below this many bytes are not worth a question to the system.
#[cfg(target_os = "linux")]
const SMALLEST: usize = 1 << 20;

/// Asks the system for large pages under a buffer. It may decline; nothing but speed depends on it.
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
    // SAFETY: whole pages inside a buffer that is borrowed exclusively; the advice changes none of
    // its contents.
    unsafe { libc::madvise(start.cast(), length, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn ask_for_large<T>(_: &mut [T]) {}
