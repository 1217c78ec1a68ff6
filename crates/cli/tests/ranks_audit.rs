//! Evaluation and audits with several processes give the results of a single process.

#![cfg(unix)]

use crate::bench::*;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.args(arguments).arg("--json").env("RAYON_NUM_THREADS", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn rank(job: &Path, arguments: &[&str], rank: usize, ranks: usize) -> Child {
    let (rank, ranks) = (rank.to_string(), ranks.to_string());
    let mut command = command(arguments);
    command.arg("--rendezvous").arg(job).args(["--rank", &rank, "--ranks", &ranks]);
    command.args(["--join-timeout", "60"]).spawn().unwrap()
}

/// The output of each of `ranks` processes.
fn in_ranks(job: &Path, arguments: &[&str], ranks: usize) -> Vec<Output> {
    let all: Vec<Child> = (0..ranks).map(|number| rank(job, arguments, number, ranks)).collect();
    all.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that one process and several give the same output, which only rank 0 prints.
fn assert_same(bench: &Bench, arguments: &[&str], ranks: usize) {
    let single = command(arguments).output().unwrap();
    assert!(single.status.success(), "{arguments:?}: {}", said(&single));
    let outputs = in_ranks(&bench.path("job"), arguments, ranks);
    for output in &outputs {
        assert!(output.status.success(), "{arguments:?}: {}", said(output));
    }
    assert!(!single.stdout.is_empty());
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text(&single), text(&outputs[0]), "{arguments:?} on {ranks} ranks");
    for other in &outputs[1..] {
        assert!(other.stdout.is_empty() && other.stderr.is_empty(), "{}", said(other));
    }
}

#[test]
fn classifiers_are_evaluated_and_attacked_by_several_processes() {
    let bench = Bench::classifier();
    bench.train("run", &["--set", "training.epochs=1"]);
    let at = |name: &str| bench.path(name).to_str().unwrap().to_owned();
    let (model, rows, run) = (at("run/model"), at("rows.tsv"), at("run"));
    let eval = ["eval", "--model", &model, "--data", &rows, "--text", "sentence", "--batch", "16"];
    assert_same(&bench, &eval, 2);
    assert_same(&bench, &eval, 3);
    let membership = ["audit", "membership", "--run", &run, "--shadows", "3"];
    assert_same(&bench, &membership, 2);
    // Only rank 0 has written.
    let kept: serde_json::Value = serde_json::from_slice(&bench.bytes("run/audit.json")).unwrap();
    assert_eq!(kept["membership"].as_array().unwrap().len(), 4);
    assert!(bench.path("run/membership.svg").is_file());
    let base = at("model");
    let released = [
        "--model", &base, "--data", &rows, "--known", &rows, "--text", "sentence", "--after", "0,1",
    ];
    let inversion = [&["audit", "inversion", "--epochs", "1"], &released[..]].concat();
    assert_same(&bench, &inversion, 2);
    let attribute =
        [&["audit", "attribute", "--attribute", "label", "--epochs", "2"], &released[..]].concat();
    assert_same(&bench, &attribute, 2);
}

#[test]
fn language_models_are_attacked_by_several_processes() {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-wordpiece", "task = \"language-modeling\"");
    bench.train("run", &["--set", "training.epochs=1"]);
    let at = |name: &str| bench.path(name).to_str().unwrap().to_owned();
    fs::write(bench.path("names.txt"), "the sat\ncat the\nran warm\n").unwrap();
    let canaries: String = (0..5)
        .map(|i| format!("{{\"text\": \"{} ##\", \"secret\": \"4{i}\"}}\n", WORDS[i]))
        .collect();
    fs::write(bench.path("canaries.jsonl"), canaries).unwrap();
    let (run, names, canaries) = (at("run"), at("names.txt"), at("canaries.jsonl"));
    let exposure = ["audit", "exposure", "--run", &run, "--candidates", "100"];
    assert_same(&bench, &[&exposure[..], &["--canaries", &canaries]].concat(), 3);
    let people = ["--kind", "person", "--names", &names];
    assert_same(&bench, &[&exposure[..], &["--found", "--secrets", "3"], &people[..]].concat(), 2);
    let extraction = ["audit", "extraction", "--run", &run, "--tokens", "8"];
    let texts = ["--texts", "23", "--batch", "4", "--trials", "2"];
    assert_same(&bench, &[&extraction[..], &texts, &people].concat(), 2);
    let reconstruction = ["audit", "reconstruction", "--run", &run, "--targets", "5"];
    assert_same(&bench, &[&reconstruction[..], &["--samples", "4"], &people].concat(), 2);
    let all = ["audit", "all", "--run", &run, "--canaries", &canaries, "--texts", "8"];
    let sizes = ["--tokens", "8", "--targets", "3", "--samples", "3", "--candidates", "100"];
    assert_same(&bench, &[&all[..], &sizes, &people].concat(), 2);
}

#[test]
fn ranks_that_do_not_go_together_are_refused() {
    let bench = Bench::classifier();
    let at = |name: &str| bench.path(name).to_str().unwrap().to_owned();
    let (model, rows, job) = (at("model"), at("rows.tsv"), bench.path("job"));
    let eval = ["eval", "--model", &model, "--data", &rows, "--text", "sentence"];
    // Different arguments, and the same name for a different file.
    let first = rank(&job, &eval, 0, 2);
    let other = rank(&job, &[&eval[..], &["--max-tokens", "4"]].concat(), 1, 2);
    for output in [first, other].map(|child| child.wait_with_output().unwrap()) {
        refused(&output, "rank 1 was started with other arguments");
    }
    fs::create_dir(bench.path("there")).unwrap();
    let text = fs::read_to_string(bench.path("rows.tsv")).unwrap();
    fs::write(bench.path("there/rows.tsv"), text.replace("cat", "dog")).unwrap();
    let here = ["eval", "--model", &model, "--data", "rows.tsv", "--text", "sentence"];
    let start = |number: usize, folder: &str| {
        let number = number.to_string();
        let mut command = command(&here);
        command.arg("--rendezvous").arg(&job).args(["--rank", &number, "--ranks", "2"]);
        command.current_dir(bench.path(folder)).spawn().unwrap()
    };
    for output in [start(0, "."), start(1, "there")].map(|child| child.wait_with_output().unwrap())
    {
        refused(&output, "has different rows than rank");
    }
    // An unreadable file stops both ranks, with its error message.
    let lost = ["eval", "--model", &model, "--data", "lost.tsv", "--text", "sentence"];
    for output in in_ranks(&job, &lost, 2) {
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    }
    let run = at("run.toml");
    let one_run = ["audit", "one-run", "--run", &run, "--out", "none"];
    for output in in_ranks(&job, &one_run, 2) {
        refused(&output, "a one-run audit runs in a single process");
    }
    let mut launched = command(&eval);
    let output = launched.env("RANK", "0").env("WORLD_SIZE", "2").output().unwrap();
    refused(&output, "torchrun started this process as rank 0 of 2");
}
