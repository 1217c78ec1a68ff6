//! Catches panics in libraries on malformed input.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread runs guarded work, in which a panic is expected and not printed.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` and turns a panic into an error with its message, without printing it.
///
/// After a panic, anything that `work` borrowed may be in an inconsistent state and must not be
/// used again.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    silence_guarded_panics();
    let outer = GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    outcome.map_err(|panic| message(panic.as_ref()))
}

/// Like [`guarded`], for work that can also return an error.
pub(crate) fn guarded_result<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    guarded(work).and_then(|outcome| outcome)
}

/// Installs a panic hook that is silent for guarded work and otherwise calls the previous one.
fn silence_guarded_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
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
        assert!(!GUARDED.get());
    }
}
