//! Error messages of the program, collected during a test and compared at its end.

use crate::snapshot::assert_snapshot;
use std::cell::RefCell;

thread_local! {
    static SAID: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Collects error messages until the end of the test, which runs on one thread.
pub struct Sentences;

impl Sentences {
    pub fn start() -> Self {
        SAID.set(Some(Vec::new()));
        Self
    }

    /// Fails unless the messages equal those of the snapshot.
    #[track_caller]
    pub fn assert(self, name: &str) {
        let said = SAID.take().unwrap_or_default();
        assert_snapshot(&format!("mistakes/{name}.txt"), &said.concat());
    }
}

/// Records an error message.
pub fn note_sentence(error: &str) {
    SAID.with_borrow_mut(|said| said.iter_mut().for_each(|all| all.push(without_folders(error))));
}

/// The text without the names of temporary folders, which differ in every run.
fn without_folders(text: &str) -> String {
    let start = std::env::temp_dir().join(".tmp");
    let mut parts = text.split(start.to_str().unwrap());
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        whole += "FOLDER";
        whole += part.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    }
    whole
}
