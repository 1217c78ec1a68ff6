//! A fence around libraries that may panic on bytes they did not expect.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread is within the fence, where a panic is expected and not to be printed.
    static FENCED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, turning a panic into its message instead of a trace on the screen.
///
/// What `work` borrowed may be left half changed by a panic: callers must not use it again.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    keep_quiet_when_fenced();
    let outer = FENCED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    FENCED.set(outer);
    outcome.map_err(|panic| message(panic.as_ref()))
}

/// As [`guarded`], for work that can also fail by itself.
pub(crate) fn guarded_result<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    guarded(work).and_then(|outcome| outcome)
}

/// Panics outside the fence are reported as they were before.
fn keep_quiet_when_fenced() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !FENCED.get() {
                report(panic);
            }
        }));
    });
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("the contents are broken")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(guarded(|| 3), Ok(3));
        let five = 5;
        assert_eq!(guarded(|| -> u8 { panic!("no {five}") }), Err("no 5".to_owned()));
        assert_eq!(guarded_result(|| -> Result<u8, String> { panic!("no") }), Err("no".to_owned()));
        assert_eq!(
            guarded_result(|| -> Result<u8, String> { Err("no".to_owned()) }),
            Err("no".to_owned())
        );
        assert!(!FENCED.get());
    }
}
