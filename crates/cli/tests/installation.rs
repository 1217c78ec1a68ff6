//! `undertone self`.

use crate::bench::refused;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};
use tempfile::tempdir;

fn undertone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap()
}

fn own(words: &[&str]) -> Output {
    undertone(&[&["self"], words].concat())
}

#[test]
fn the_self_check_passes_here_and_needs_a_folder() {
    let checked = own(&["check", "--json"]);
    assert!(checked.status.success(), "{checked:?}");
    let result: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(result["ok"], true);
    let status = |name: &str| {
        let all = result["checks"].as_array().unwrap();
        let check = all.iter().find(|check| check["name"] == name);
        check.unwrap_or_else(|| panic!("{name}"))["status"].clone()
    };
    for name in ["files", "randomness", "noise", "sampling", "clipping", "noisy step", "accountant"]
    {
        assert_eq!(status(name), "ok", "{name}");
    }
    refused(&own(&["check", "--folder", "/nonexistent"]), "/nonexistent is not a folder");
}

#[test]
fn completions_and_man_pages_name_every_verb() {
    for shell in ["bash", "zsh", "fish"] {
        let script = own(&["completions", shell]).stdout;
        let script = String::from_utf8(script).unwrap();
        assert!(script.contains("train") && script.contains("completions"), "{shell}");
    }
    refused(&own(&["completions", "tcsh"]), "invalid value 'tcsh'");
    let folder = tempdir().unwrap();
    let out = folder.path().join("man");
    assert!(own(&["man", "--out", out.to_str().unwrap()]).status.success());
    let page = fs::read_to_string(out.join("undertone-train.1")).unwrap();
    assert!(page.contains("Fine\\-tune a model from a run file"), "{page}");
    assert!(out.join("undertone.1").is_file() && out.join("undertone-self-check.1").is_file());
}

#[test]
fn the_quick_demo_trains_and_attacks_classifiers_only() {
    let folder = tempdir().unwrap();
    let place = folder.path();
    let shown =
        undertone(&["demo", "--quick", "--letters", "256", "--out", place.to_str().unwrap()]);
    assert!(shown.status.success(), "{shown:?}");
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("sort-epsilon-8") && shown.contains("AUC"), "{shown}");
    assert!(!shown.contains("codes given away"), "{shown}");
    assert!(place.join("report.html").is_file() && !place.join("write-epsilon-8").exists());
    refused(&undertone(&["demo", "--quick", "--data-only"]), "cannot be used with");
}

#[test]
fn the_version_is_that_of_undertone() {
    let output = Command::new(env!("CARGO_BIN_EXE_undertone")).arg("--version").output().unwrap();
    let expected = concat!("undertone ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}
