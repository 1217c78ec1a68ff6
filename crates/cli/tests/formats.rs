//! Run folders and ledgers of released versions stay readable. `fixtures/VERSION` has a finished
//! run of that version and its rows; the base model is the one that all tests use.

use crate::bench::fixture;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The versions, with ε of the finished run.
const VERSIONS: [(&str, f64); 1] = [("0.2.0", 7.999)];

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => _ = fs::copy(entry.path(), to.join(entry.file_name())).unwrap(),
        }
    }
}

/// The files of a version, beside the model that they name.
fn unpacked(version: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version);
    copy(&all, folder.path());
    copy(&fixture("models/bert-classification"), &folder.path().join("model"));
    let tokenizer = fixture("tokenizer-wordpiece").join("tokenizer.json");
    fs::copy(tokenizer, folder.path().join("model/tokenizer.json")).unwrap();
    folder
}

fn run(folder: &Path, words: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    let output = command.current_dir(folder).args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn runs_of_released_versions_are_read() {
    for (version, epsilon) in VERSIONS {
        let unpacked = unpacked(version);
        let folder: PathBuf = unpacked.path().to_owned();
        let ledger: Value =
            serde_json::from_str(&run(&folder, "budget ledger finished --json")).unwrap();
        let upper = ledger["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
        assert!((upper - epsilon).abs() < 1e-3, "{version}: {upper}");
        run(&folder, "report finished --out report.html");
        let page = fs::read_to_string(folder.join("report.html")).unwrap();
        assert!(page.contains("differential privacy"), "{version}");
        let figures: Value =
            serde_json::from_str(&run(&folder, "eval --run finished --data rows.tsv --json"))
                .unwrap();
        assert_eq!(figures["examples"], 120, "{version}: {figures}");
    }
}
