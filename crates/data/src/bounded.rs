//! Execution of untrusted work within a memory bound, for programs that come with a model: a chat
//! template can double a text with one instruction.
//!
//! [`BoundedAllocator`] counts the memory held by the thread of such work. Work that requests more
//! is stopped at the request. An allocation must not unwind, and a failed allocation ends the
//! process, but an allocation may block forever. The work therefore runs on its own thread, which
//! is abandoned, with the memory it holds, until the process ends.

use crate::guard::guarded;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Bytes charged per allocation in addition to its size, so that many small allocations cannot
/// circumvent the bound. It also bounds how deeply values can be nested and, with [`STACK`], the
/// recursion needed to print or drop them.
const OVERHEAD: usize = 128;
/// Bytes of stack per byte that the work may hold. They take memory only when used.
const STACK: usize = 16;
/// Remaining bytes of threads without a bound.
const UNBOUNDED: usize = usize::MAX;

thread_local! {
    /// Remaining bytes that this thread may allocate.
    static LEFT: Cell<usize> = const { Cell::new(UNBOUNDED) };
    /// Notifies the waiting thread that this thread exceeded its bound.
    static TELL: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// The system allocator, extended to bound the memory of chat templates.
///
/// A program that uses untrusted models installs it, as `undertone` does. Without it, templates are
/// bounded only in instructions, recursion and output:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: undertone_data::BoundedAllocator = undertone_data::BoundedAllocator;
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BoundedAllocator;

// SAFETY: every call is forwarded unchanged to the system allocator, or does not return. The
// thread-local number has neither an initializer nor a destructor, so reading it does not allocate.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for BoundedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size().saturating_add(OVERHEAD));
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size().saturating_add(OVERHEAD));
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        give_back(layout.size().saturating_add(OVERHEAD));
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size.saturating_sub(layout.size()));
        give_back(layout.size().saturating_sub(size));
        // SAFETY: the caller upholds the same contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[inline]
fn take(bytes: usize) {
    let left = LEFT.get();
    if left == UNBOUNDED {
        return;
    }
    match left.checked_sub(bytes) {
        Some(left) => LEFT.set(left),
        None => stop(),
    }
}

#[inline]
fn give_back(bytes: usize) {
    let left = LEFT.get();
    if left != UNBOUNDED {
        LEFT.set(left.saturating_add(bytes).min(UNBOUNDED - 1));
    }
}

#[cold]
fn stop() -> ! {
    // The notification itself may allocate.
    LEFT.set(UNBOUNDED);
    if let Some(tell) = TELL.take() {
        tell();
    }
    loop {
        std::thread::park();
    }
}

/// Why the work has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It requested more memory than allowed.
    Memory,
    /// It took longer than allowed.
    Time,
    /// It panicked, or its thread could not be started.
    Broken(String),
}

/// Runs work that holds at most `bytes` bytes at any time, including [`OVERHEAD`] per allocation,
/// and takes at most the given time.
pub(crate) fn within<T: Send + 'static>(
    bytes: usize,
    longest: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Stopped> {
    let (done, outcome) = sync_channel(1);
    let exceeded = done.clone();
    let thread = std::thread::Builder::new().stack_size(STACK * bytes);
    let started = thread.spawn(move || {
        TELL.set(Some(Box::new(move || drop(exceeded.send(Err(Stopped::Memory))))));
        LEFT.set(bytes);
        let outcome = guarded(work).map_err(Stopped::Broken);
        LEFT.set(UNBOUNDED);
        drop(done.send(outcome));
    });
    if let Err(e) = started {
        return Err(Stopped::Broken(format!("its thread cannot be started: {e}")));
    }
    match outcome.recv_timeout(longest) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Err(Stopped::Time),
        Err(RecvTimeoutError::Disconnected) => Err(Stopped::Broken("its thread ended".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const BYTES: usize = 1 << 20;

    fn held<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Stopped> {
        within(BYTES, LONG, work)
    }

    #[test]
    fn work_is_stopped_when_it_asks_for_more() {
        assert_eq!(held(|| vec![1_u8; BYTES / 2].len()), Ok(BYTES / 2));
        assert_eq!(held(|| vec![1_u8; 2 * BYTES].len()), Err(Stopped::Memory));
        assert_eq!(held(|| vec![0_u8; 2 * BYTES].len()), Err(Stopped::Memory), "zeroed");
        let grown = || {
            (0..BYTES).fold(Vec::new(), |mut all, i| {
                all.push(i);
                all
            })
        };
        assert_eq!(held(move || grown().len()), Err(Stopped::Memory), "reallocated");
        let many = || (0..BYTES / 64).map(|_| Box::new(0_u8)).collect::<Vec<_>>().len();
        assert_eq!(held(many), Err(Stopped::Memory), "small ones");
        assert_eq!(many(), BYTES / 64, "other threads have no bound");
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let often = || (0..100).map(|i| vec![i; BYTES / 16].len()).sum::<usize>();
        assert_eq!(held(often), Ok(100 * (BYTES / 16)));
    }

    #[test]
    fn work_that_panics_or_takes_long_is_told() {
        let panics = || -> u8 { panic!("no") };
        assert_eq!(held(panics), Err(Stopped::Broken("no".into())));
        let ever = || loop {
            std::thread::park();
        };
        let result: Result<u8, Stopped> = within(BYTES, Duration::from_millis(10), ever);
        assert_eq!(result, Err(Stopped::Time));
    }
}
