//! Cache hints.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Prefetches the cache line at an address.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch<T>(line: *const T) {
    // SAFETY: a prefetch is only a hint; it may name any address and reads nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
}
