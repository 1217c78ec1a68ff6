//! Hints to the cache.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Asks for the line of memory at an address, which will be needed soon.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch<T>(line: *const T) {
    // SAFETY: a hint, which reads nothing and may name any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
}
