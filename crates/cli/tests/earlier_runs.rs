//! Earlier runs on the same file are named before a run begins, with what all cost together; no file
//! says so.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn said(bench: &Bench, out: &str, more: &[&str]) -> String {
    let short = ["--set", "training.epochs=1"];
    let output = bench.command(out, &[&short[..], more].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

fn assert_nowhere(folder: &Path, words: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => assert_nowhere(&path, words),
            false => {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                assert!(!text.contains(words), "{words} in {}", path.display());
            }
        }
    }
}

#[test]
fn the_total_is_that_of_the_ledgers() {
    let bench = Bench::classifier();
    assert!(!said(&bench, "runs/one", &[]).contains("earlier runs"));
    let told = said(&bench, "runs/two", &["--set", "privacy.epsilon=2"]);
    let folders = [bench.path("runs/one"), bench.path("runs/two")];
    let paths = folders.each_ref().map(|path| path.to_str().unwrap());
    let found = run(&["budget", "ledger", paths[0], paths[1], "--json"]);
    let found: Value = serde_json::from_slice(&found).unwrap();
    let total = found["together"]["epsilon"]["upper"].as_f64().unwrap();
    let total = format!(
        "Together with this run, ε = {} at δ = 1e-3",
        undertone_accounting::rounded_up(total)
    );
    assert!(told.contains("earlier runs on") && told.contains(&total), "{total}: {told}");
    assert!(told.contains("runs/one (ε = "), "{told}");
    // Nothing of it is in a file of the run.
    assert_nowhere(&folders[1], "earlier");
    assert_nowhere(&folders[1], "runs/one");
    // A third run names both; one on other rows names none; one elsewhere names none.
    let told = said(&bench, "runs/three", &[]);
    assert!(told.contains("runs/one (ε = ") && told.contains("runs/two (ε = "), "{told}");
    let other = format!("data.train={:?}", bench.public());
    assert!(!said(&bench, "runs/four", &["--set", &other]).contains("earlier runs"));
    assert!(!said(&bench, "elsewhere/one", &[]).contains("earlier runs"));
}

#[test]
fn what_cannot_be_added_up_is_said() {
    let bench = Bench::classifier();
    said(&bench, "runs/none", &["--set", "privacy.method=none"]);
    let told = said(&bench, "runs/one", &[]);
    assert!(told.contains("runs/none used") && told.contains("without a guarantee"), "{told}");
    assert!(!told.contains("earlier runs on"), "{told}");
    let told = said(&bench, "runs/users", &["--set", "data.author=who"]);
    assert!(told.contains("There is no total with this run"), "{told}");
    // A stopped run counts as planned.
    if bench.kill_after("stopped/one", &["--set", "compute.checkpoint_every=1"], 3) {
        let told = said(&bench, "stopped/two", &[]);
        assert!(told.contains("stopped/one (ε = 7.9"), "{told}");
    }
    // One whose ledger is damaged is named all the same.
    fs::write(bench.path("runs/users/ledger.jsonl"), "{}\n").unwrap();
    let told = said(&bench, "runs/three", &[]);
    assert!(told.contains("its cost is not known"), "{told}");
}
