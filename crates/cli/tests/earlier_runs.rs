//! Before a run begins, earlier runs on the same file are listed with their total cost; no file
//! contains this list.

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
    let printed = said(&bench, "runs/two", &["--set", "privacy.epsilon=2"]);
    let folders = [bench.path("runs/one"), bench.path("runs/two")];
    let paths = folders.each_ref().map(|path| path.to_str().unwrap());
    let answer = run(&["budget", "ledger", paths[0], paths[1], "--json"]);
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let total = answer["together"]["epsilon"]["upper"].as_f64().unwrap();
    let total = format!(
        "Together with this run, ε = {} at δ = 1e-3",
        undertone_accounting::rounded_up(total)
    );
    assert!(printed.contains("earlier runs on") && printed.contains(&total), "{total}: {printed}");
    assert!(printed.contains("runs/one (ε = "), "{printed}");
    // None of it is in any file of the run.
    assert_nowhere(&folders[1], "earlier");
    assert_nowhere(&folders[1], "runs/one");
    // A third run lists both; a run on other rows lists none; a run elsewhere lists none.
    let printed = said(&bench, "runs/three", &[]);
    assert!(printed.contains("runs/one (ε = ") && printed.contains("runs/two (ε = "), "{printed}");
    let other = format!("data.train={:?}", bench.public());
    assert!(!said(&bench, "runs/four", &["--set", &other]).contains("earlier runs"));
    assert!(!said(&bench, "elsewhere/one", &[]).contains("earlier runs"));
}

#[test]
fn what_cannot_be_added_up_is_said() {
    let bench = Bench::classifier();
    said(&bench, "runs/none", &["--set", "privacy.method=none"]);
    let printed = said(&bench, "runs/one", &[]);
    assert!(
        printed.contains("runs/none used") && printed.contains("without a guarantee"),
        "{printed}"
    );
    assert!(!printed.contains("earlier runs on"), "{printed}");
    let printed = said(&bench, "runs/users", &["--set", "data.author=who"]);
    assert!(printed.contains("There is no total with this run"), "{printed}");
    // A stopped run counts with its plan.
    if bench.kill_after("stopped/one", &["--set", "compute.checkpoint_every=1"], 3) {
        let printed = said(&bench, "stopped/two", &[]);
        assert!(printed.contains("stopped/one (ε = 7.9"), "{printed}");
    }
    // A run whose ledger is damaged is still listed.
    fs::write(bench.path("runs/users/ledger.jsonl"), "{}\n").unwrap();
    let printed = said(&bench, "runs/three", &[]);
    assert!(printed.contains("its cost is not known"), "{printed}");
}
