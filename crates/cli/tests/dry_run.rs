//! A dry run performs the checks of training and prints the same warnings.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

/// `train` in the bench's folder.
fn train(bench: &Bench, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.current_dir(bench.folder.path()).args(["train", "run.toml"]).args(more);
    command.output().unwrap()
}

/// The standard error of both commands; a dry run must not print more than training does initially.
fn both(bench: &Bench, more: &[&str]) -> [Output; 2] {
    let dry = train(bench, &[more, &["--dry-run"]].concat());
    assert!(!bench.path("runs").exists(), "a dry run writes nothing");
    let real = train(bench, &[more, &["--out", "runs/real"]].concat());
    let _ = fs::remove_dir_all(bench.path("runs"));
    [dry, real]
}

/// Checks that both are refused in the same words.
fn same_refusal(bench: &Bench, more: &[&str], about: &str) {
    let [dry, real] = both(bench, more);
    refused(&dry, about);
    assert_eq!(String::from_utf8_lossy(&dry.stderr), String::from_utf8_lossy(&real.stderr));
    assert_eq!(real.status.code(), Some(2));
}

#[test]
fn what_training_refuses_a_dry_run_refuses_too() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    same_refusal(&bench, &["--set", "data.validation=none.tsv"], "none.tsv");
    same_refusal(&bench, &["--set", "data.text=words"], "no column \"words\"");
    let rows = String::from_utf8(bench.bytes("rows.tsv")).unwrap();
    fs::write(bench.path("rows.tsv"), rows.replacen("\tbad\t", "\tBAD\t", 1)).unwrap();
    same_refusal(&bench, &[], "label \"BAD\" is not one of bad, neutral, good");
    fs::write(bench.path("rows.tsv"), &rows).unwrap();
    let of_users = ["--set", "data.author=who", "--set", "training.batch=100"];
    same_refusal(&bench, &of_users, "at most the number of users");
    fs::remove_file(bench.path("model/tokenizer.json")).unwrap();
    same_refusal(&bench, &[], "tokenizer.json");
    sentences.assert("dry_run");
}

#[test]
fn warnings_are_those_of_training() {
    let bench = Bench::classifier();
    let rows = String::from_utf8(bench.bytes("rows.tsv")).unwrap();
    fs::write(bench.path("rows.tsv"), rows + "  \tgood\tperson 77\n").unwrap();
    let little = ["--set", "privacy.epsilon=0.2", "--set", "training.batch=2"];
    let [dry, real] = both(&bench, &[&little[..], &["--set", "privacy.delta=0.1"]].concat());
    let (dry, real) =
        (String::from_utf8(dry.stderr).unwrap(), String::from_utf8(real.stderr).unwrap());
    for warning in
        ["1 row without text", "δ = 1e-1 is not below 1/121", "will probably learn nothing"]
    {
        assert!(dry.contains(warning), "{dry}");
    }
    let warnings = |said: &str| -> Vec<String> {
        said.lines().filter(|line| line.starts_with("warning")).map(str::to_owned).collect()
    };
    assert_eq!(warnings(&dry), warnings(&real));
}

#[test]
fn the_time_is_that_of_a_typical_text() {
    let bench = Bench::classifier();
    let tokens = |more: &[&str]| -> u64 {
        let dry = train(&bench, &[more, &["--dry-run", "--json"]].concat());
        assert!(dry.status.success(), "{}", String::from_utf8_lossy(&dry.stderr));
        let answer: Value = serde_json::from_slice(&dry.stdout).unwrap();
        assert_eq!(answer["steps_timed"][1]["tokens"], 16);
        answer["steps_timed"][0]["tokens"].as_u64().unwrap()
    };
    assert_eq!(tokens(&[]), 4, "a quarter of the maximum");
    assert_eq!(tokens(&["--typical-tokens", "7"]), 7);
    let mean = tokens(&["--sample", "rows.tsv"]);
    assert!(mean > 4 && mean < 16, "{mean}");
    // A validation file serves as a sample only if it is declared public.
    let public = format!("data.validation={:?}", bench.public());
    let changes = ["--set", &public, "--set", "data.validation_is_public=true"];
    assert_eq!(tokens(&changes), mean);
    refused(&train(&bench, &["--dry-run", "--typical-tokens", "17"]), "data.max_tokens");
    refused(&train(&bench, &["--typical-tokens", "7"]), "--dry-run");
}
