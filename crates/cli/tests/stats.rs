//! `stats`: what it writes and prints, its ledger, and what it refuses.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn undertone(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// 4,321 rows of 617 people.
fn rows() -> String {
    let row = |i: usize| {
        let words = "pay the rent ".repeat(1 + i % 3);
        format!("p{},{words}{i},{}\n", i % 617, ["rent", "pay", "rent"][i % 3])
    };
    "who,text,topic\n".to_owned() + &(0..4321).map(row).collect::<String>()
}

const STATS: [&str; 5] = ["stats", "rows.csv", "--epsilon", "1", "--out"];

#[test]
fn statistics_are_written_with_a_ledger_and_nothing_exact() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rows.csv"), rows()).unwrap();
    let labels = ["--label", "topic", "--labels", "rent,pay", "--author", "who", "--vocabulary"];
    let output = undertone(folder.path(), &[&STATS[..], &["stats"], &labels].concat());
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{printed}");
    for part in ["units", "label rent", "95 % of it within", "-differential privacy for adding"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let written = fs::read_to_string(folder.path().join("stats/statistics.json")).unwrap();
    let ledger = fs::read_to_string(folder.path().join("stats/ledger.jsonl")).unwrap();
    // A noisy number may have the same digits as the exact one.
    let is_exact = |text: &str| {
        text.contains("4,321") || text.split(|c: char| !c.is_ascii_digit()).any(|n| n == "4321")
    };
    assert!([&printed, &written, &ledger].iter().all(|text| !is_exact(text)), "{printed}{written}");
    let statistics: Value = serde_json::from_str(&written).unwrap();
    let std = statistics["noise_std"].as_f64().unwrap();
    let units = statistics["units"].as_f64().unwrap();
    assert!((units - 617.0).abs() < 6.0 * std && units != 617.0, "{units}");
    let checked = ["budget", "ledger", "stats/ledger.jsonl", "--delta", "1e-6", "--json"];
    let checked: Value =
        serde_json::from_slice(&undertone(folder.path(), &checked).stdout).unwrap();
    assert_eq!(checked["entries"], 7);
    let epsilon = checked["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(epsilon <= 1.0 && epsilon > 0.99, "{epsilon}");
    assert_eq!(checked["guarantee"]["unit"], "user");
    // Another release of the same statistics has different noise, and its own cost.
    let again = undertone(folder.path(), &[&STATS[..], &["again"], &labels].concat());
    assert!(again.status.success());
    assert_ne!(fs::read_to_string(folder.path().join("again/statistics.json")).unwrap(), written);
    let both = ["budget", "ledger", "stats/ledger.jsonl", "again/ledger.jsonl"];
    let both = undertone(folder.path(), &[&both[..], &["--delta", "3e-6", "--json"]].concat());
    let both: Value = serde_json::from_slice(&both.stdout).unwrap();
    assert!(both["together"]["epsilon"]["upper"].as_f64().unwrap() > 1.2, "{both}");
}

#[test]
fn mistakes_are_refused_and_release_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rows.csv"), rows()).unwrap();
    fs::write(folder.path().join("broken.csv"), "who,text\nx,abc\ny,\"abc\n").unwrap();
    for (arguments, about) in [
        (vec!["rows.csv", "--epsilon", "0"], "must be a finite number above 0"),
        (vec!["rows.csv", "--epsilon", "1", "--delta", "0.7"], "δ is 0.7"),
        (vec!["rows.csv", "--epsilon", "1", "--text", "body"], "no column \"body\""),
        (vec!["rows.csv", "--epsilon", "1", "--label", "topic"], "--labels"),
        (vec!["rows.csv", "--epsilon", "1", "--label", "topic", "--labels", "a,a"], "twice"),
        (vec!["rows.csv", "--epsilon", "1", "--words-per-unit", "5"], "--vocabulary"),
        (vec!["missing.csv", "--epsilon", "1"], "does not exist"),
        (vec!["broken.csv", "--epsilon", "1"], "cannot be read to its end"),
    ] {
        let all = [vec!["stats"], arguments.clone(), vec!["--out", "new"]].concat();
        let output = undertone(folder.path(), &all);
        let problem = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {problem}");
        assert!(problem.contains(about), "{arguments:?}: {problem}");
        assert!(!problem.contains(":3:"), "the line is a figure about the data: {problem}");
        assert!(!folder.path().join("new").exists(), "{arguments:?}");
    }
    fs::create_dir(folder.path().join("full")).unwrap();
    fs::write(folder.path().join("full/ledger.jsonl"), "mine").unwrap();
    let full = undertone(folder.path(), &[&STATS[..], &["full"]].concat());
    assert!(text(&full.stderr).contains("already contains files"));
}

/// `init` with statistics declares their number of units and reads no row.
#[test]
fn init_takes_its_settings_from_statistics() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rows.csv"), rows()).unwrap();
    let labels = ["--label", "topic", "--labels", "rent,pay", "--author", "who"];
    let stats = undertone(folder.path(), &[&STATS[..], &["stats"], &labels].concat());
    assert!(stats.status.success(), "{}", text(&stats.stderr));
    let init = ["init", "rows.csv", "--stats", "stats/statistics.json", "--text", "text"];
    let init = [&init[..], &["--label", "topic", "--model", "some/model"]].concat();
    let by_author = [&init[..], &["--author", "who"]].concat();
    let output = undertone(folder.path(), &by_author);
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("by the private statistics"), "{printed}");
    assert!(!printed.contains("617") || !printed.contains("4321"), "{printed}");
    let statistics = fs::read_to_string(folder.path().join("stats/statistics.json")).unwrap();
    let statistics: Value = serde_json::from_str(&statistics).unwrap();
    let units = statistics["units"].as_f64().unwrap().round();
    let run = fs::read_to_string(folder.path().join("run.toml")).unwrap();
    assert!(run.contains(&format!("units = {units}")), "{run}");
    assert!(run.contains("labels = [\"rent\", \"pay\"]"), "{run}");
    let refused = |arguments: &[&str], about: &str| {
        let output = undertone(folder.path(), &[arguments, &["--force"]].concat());
        let problem = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{problem}");
        assert!(problem.contains(about), "{problem}");
    };
    refused(&[&init[..], &["--no-author"]].concat(), "count authors and the run protects rows");
    fs::write(folder.path().join("stats/statistics.json"), "{}").unwrap();
    refused(&by_author, "is no statistics.json of undertone stats");
}
