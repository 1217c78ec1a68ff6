//! A fence around libraries that may panic on bytes they did not expect.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`, turning a panic into its message.
///
/// What `work` borrowed may be left half changed by a panic: callers must not use it again.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| message(panic.as_ref()))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the contents are broken").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(guarded(|| 3), Ok(3));
        let five = 5;
        assert_eq!(guarded(|| -> u8 { panic!("no {five}") }), Err("no 5".to_owned()));
        assert_eq!(guarded(|| -> u8 { panic!("no") }), Err("no".to_owned()));
    }
}
