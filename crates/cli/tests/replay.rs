//! `audit replay`: what it counts, where it saves it, and what it refuses.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

fn replay(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.args(["audit", "replay"]).args(arguments).output().unwrap()
}

#[test]
fn repeated_strings_are_counted_by_kind_and_kept_private() {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-wordpiece", "task = \"language-modeling\"");
    let row = |i: usize| format!("the cat sat p{}@example.org today\tgood\tperson {i}\n", i % 30);
    let rows: String = (0..120).map(row).collect();
    fs::write(bench.path("rows.tsv"), format!("sentence\tlabel\twho\n{rows}")).unwrap();
    bench.train("run", &["--set", "training.epochs=1", "--set", "data.max_tokens=32"]);
    let run = bench.path("run");
    let run = run.to_str().unwrap();
    let output = replay(&["--run", run, "--json", "--kind", "email", "--targets", "20"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer[0]["kind"], &answer[0]["tried"]), (&"email".into(), &20.into()));
    let kept: Value = serde_json::from_slice(&bench.bytes("run/private/replay.json")).unwrap();
    assert_eq!(kept, answer);
    refused(&replay(&["--run", run, "--kind", "iban"]), "nothing to replay");
    let classifier = Bench::classifier();
    classifier.train("run", &["--set", "training.epochs=1"]);
    let run = classifier.path("run");
    refused(&replay(&["--run", run.to_str().unwrap()]), "needs a language model");
}

/// A model that has memorized its few texts repeats the names in them; before training, it repeats
/// none of them.
#[test]
fn a_model_that_memorizes_is_accused() {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-wordpiece", "task = \"language-modeling\"");
    let rows = [
        ("today the sun", "cat dog"),
        ("warm dog", "sat ran"),
        ("ran the", "sun warm"),
        ("cat today", "dog sun"),
    ];
    let line = |(before, name): &(&str, &str)| format!("{before} {name}\tgood\tp\n");
    let text: String = rows.iter().map(line).collect();
    fs::write(bench.path("rows.tsv"), format!("sentence\tlabel\twho\n{text}")).unwrap();
    let names: String = rows.iter().map(|(_, name)| format!("{name}\n")).collect();
    fs::write(bench.path("names.txt"), names).unwrap();
    let set = [
        "privacy.method=none",
        "training.epochs=300",
        "training.batch=4",
        "training.learning_rate=0.02",
        "training.seed=5",
    ];
    let set: Vec<&str> = set.iter().flat_map(|key| ["--set", key]).collect();
    bench.train("run", &set);
    let (run, names) = (bench.path("run"), bench.path("names.txt"));
    let paths = ["--run", run.to_str().unwrap(), "--names", names.to_str().unwrap()];
    let output = replay(&[&paths[..], &["--kind", "person", "--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer[0]["tried"], 4, "{answer}");
    assert!(answer[0]["repeated"].as_u64().unwrap() >= 3, "{answer}");
    assert_eq!(answer[0]["pretrained"], 0, "{answer}");
}
