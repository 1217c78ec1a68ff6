//! A small model and some rows in a folder.

#[path = "../../cli/tests/bench/sentences.rs"]
mod sentences;

pub use sentences::Sentences;
use sentences::note_sentence;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../undertone/tests/fixtures").join(name)
}

/// A folder with a small model and some rows.
pub struct Bench {
    folder: tempfile::TempDir,
}

pub const WORDS: [&str; 8] = ["cat", "dog", "sun", "the", "warm", "today", "sat", "ran"];

impl Bench {
    pub fn classifier() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        fs::create_dir_all(&model).unwrap();
        for file in ["config.json", "model.safetensors"] {
            let from = fixture("models/bert-classification").join(file);
            fs::copy(from, model.join(file)).unwrap();
        }
        let tokenizer = fixture("tokenizer-wordpiece/tokenizer.json");
        fs::copy(tokenizer, model.join("tokenizer.json")).unwrap();
        let rows: String = (0..120)
            .map(|i| {
                let words: Vec<&str> = (0..3 + i % 5).map(|j| WORDS[(i * 7 + j * 3) % 8]).collect();
                format!("{}\t{}\tperson {}\n", words.join(" "), ["bad", "good"][i % 2], i / 3)
            })
            .collect();
        fs::write(folder.path().join("rows.tsv"), format!("sentence\tlabel\twho\n{rows}")).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Checks that the program refused with exit code 2 and one sentence that contains `about`.
#[track_caller]
pub fn refused(output: &Output, about: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    note_sentence(&error);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(about) && !error.contains("panicked"), "said {error}, not {about}");
}
