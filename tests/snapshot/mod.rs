//! Texts for people, stored in files: help, error messages, reports.
//!
//! A test compares the program's output with the file of that name in its crate's
//! `tests/snapshots`. After an intended change, `UNDERTONE_SNAPSHOTS=write cargo test --workspace`
//! rewrites the files, and the difference is reviewed in the commit.

use std::fs;
use std::path::{Path, PathBuf};

/// Whether snapshots are written instead of compared.
fn writing() -> bool {
    std::env::var("UNDERTONE_SNAPSHOTS").is_ok_and(|value| value == "write")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots")
}

/// Fails unless the text equals the contents of the file.
#[track_caller]
pub fn assert_snapshot(name: &str, text: &str) {
    let (path, text) = (folder().join(name), format!("{}\n", text.trim_end()));
    let kept = fs::read_to_string(&path).unwrap_or_default();
    if text == kept {
        return;
    }
    if writing() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        return fs::write(&path, text).unwrap();
    }
    panic!(
        "{} holds another text; if this one is right, UNDERTONE_SNAPSHOTS=write cargo test \
         --workspace keeps it\n{}",
        path.display(),
        differences(&kept, &text)
    );
}

/// Fails unless a folder of snapshots contains exactly these files, for example no help of a
/// removed verb.
#[allow(dead_code)]
#[track_caller]
pub fn assert_files(name: &str, expected: &[String]) {
    for entry in fs::read_dir(folder().join(name)).unwrap() {
        let path = entry.unwrap().path();
        let known = expected.iter().any(|file| path.ends_with(file));
        if !known && writing() {
            fs::remove_file(&path).unwrap();
        } else {
            assert!(known, "{} belongs to no test", path.display());
        }
    }
}

/// The lines from the first to the last difference, of both texts.
///
fn differences(kept: &str, text: &str) -> String {
    let (kept, text): (Vec<&str>, Vec<&str>) = (kept.lines().collect(), text.lines().collect());
    let same = kept.iter().zip(&text).take_while(|(a, b)| a == b).count();
    let (kept, text) = (&kept[same..], &text[same..]);
    let after = kept.iter().rev().zip(text.iter().rev()).take_while(|(a, b)| a == b).count();
    let lines = |sign: char, lines: &[&str]| -> String {
        lines[..lines.len() - after].iter().map(|line| format!("{sign} {line}\n")).collect()
    };
    lines('-', kept) + &lines('+', text)
}
