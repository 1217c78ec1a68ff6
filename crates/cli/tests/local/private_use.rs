//! Resumed runs, private predictions, and errors.

use super::{HEAD, set};
use crate::bench::*;
use std::fs;
use std::process::Command;

#[test]
fn a_killed_run_goes_on_with_the_same_releases() {
    let bench = Bench::classifier();
    let settings = set(&[
        "privacy.method=ew-ft",
        "privacy.local.dims=[4]",
        "privacy.local.release=path",
        "privacy.schedule=linear",
        "training.epochs=3",
        "training.batch=4",
        "compute.checkpoint_every=3",
    ]);
    let seeded: Vec<&str> = settings.iter().copied().chain(["--seed", "5"]).collect();
    bench.train("whole", &seeded);
    let broken = bench.kill_after("broken", &seeded, 20);
    if broken {
        bench.resume("broken");
    }
    bench.assert_same_runs("broken", "whole", "model/model.safetensors");
}

#[test]
fn texts_are_predicted_in_private() {
    let bench = Bench::classifier();
    let mut changes = set(&["privacy.method=dp-forward"]);
    changes.extend(HEAD);
    bench.train("run", &changes);
    let predict = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command
            .args(["predict", "--text", "sentence", "--max-tokens", "16", "--model"])
            .arg(bench.path("model"));
        command
            .arg("--adapter")
            .arg(bench.path("run/adapter"))
            .arg("--data")
            .arg(bench.path("rows.tsv"));
        command.arg("--out").arg(bench.path("said.jsonl")).args(more).output().unwrap()
    };
    let said = || fs::read_to_string(bench.path("said.jsonl")).unwrap();
    assert!(predict(&[]).status.success());
    let open = said();
    let output = predict(&["--private", "--epsilon", "2", "--delta", "1e-5"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("(2.0000, 1e-5)"), "{text}");
    let (first, lines) = (said(), said().lines().count());
    assert_eq!(lines, 120);
    assert_ne!(first, open);
    // A second call has new noise, and its cost is added to that of the first.
    let text = String::from_utf8_lossy(
        &predict(&["--private", "--epsilon", "2", "--delta", "1e-5"]).stdout,
    )
    .into_owned();
    assert_ne!(first, said());
    assert!(text.contains("guarantee: (2.9") || text.contains("guarantee: (3."), "{text}");
    // Each text is computed separately, and a sanitizer out of range is refused before anything is
    // recorded.
    refused(&predict(&["--private", "--batch", "8"]), "--batch");
    for epsilon in ["0", "-1", "nan", "1e300"] {
        let flag = format!("--epsilon={epsilon}");
        refused(&predict(&["--private", &flag, "--delta", "1e-5"]), "--epsilon is");
    }
    let ledger = bench.path("said.jsonl.ledger.jsonl");
    let (paid, config) = (fs::read(&ledger).unwrap(), bench.path("run/adapter/sanitizer.json"));
    let kept = fs::read_to_string(&config).unwrap();
    let mut sanitizer: serde_json::Value = serde_json::from_str(&kept).unwrap();
    for (key, value) in [("norm", 1e29), ("norm", 1e-30), ("deviation", 1e30), ("deviation", 0.0)] {
        let was = sanitizer[key].clone();
        sanitizer[key] = serde_json::json!(value);
        fs::write(&config, sanitizer.to_string()).unwrap();
        refused(&predict(&["--private"]), if key == "norm" { "1e-10 to 1e10" } else { "1e-3" });
        sanitizer[key] = was;
    }
    assert_eq!(fs::read(&ledger).unwrap(), paid);
    let bare = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["predict", "--private", "--text", "sentence", "--model"])
        .arg(bench.path("model"))
        .arg("--data")
        .arg(bench.path("rows.tsv"))
        .arg("--out")
        .arg(bench.path("none.jsonl"))
        .output()
        .unwrap();
    refused(&bare, "was trained with dp-forward");
}

#[test]
fn mistakes_are_one_sentence() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    let cases: [(&[&str], &str); 17] = [
        (&["privacy.local.dims=[4]"], "[privacy.local] is for"),
        (&["privacy.method=dp-forward", "privacy.local.after=9"], "blocks"),
        (&["privacy.method=dp-forward", "privacy.local.after=roof"], "after is"),
        (&["privacy.method=ew-ft", "privacy.local.encoder=pca"], "public text"),
        (&["privacy.method=ew-ft", "privacy.local.encoder=trained"], "voids the guarantee"),
        (&["privacy.method=ew-ft", "privacy.local.dims=[0]"], "dims"),
        (&["privacy.method=ew-ft", "privacy.schedule=ewpba"], "release = \"path\""),
        (&["privacy.method=mvg", "privacy.mvg.attention=raw"], "raw"),
        (&["privacy.method=mvg", "privacy.mvg.spread=0"], "privacy.mvg.spread"),
        (&["privacy.method=dp-forward", "privacy.local.label_epsilon=9"], "label_epsilon"),
        (&["privacy.method=dp-forward", "training.dropout=true"], "dropout"),
        (&["privacy.method=dp-forward", "privacy.local.learn=discriminant"], "model.tuning"),
        (&["privacy.method=dp-forward", "privacy.local.bound=box"], "bound the norm"),
        (&["privacy.method=dp-forward", "privacy.local.label_epsilon=nan"], "label_epsilon"),
        (&["privacy.method=ew-ft", "privacy.local.encoder=none"], "dp-forward"),
        (&["privacy.mvg.width=4"], "[privacy.mvg] is for"),
        (
            &["privacy.method=dp-forward", "data.author=who", "privacy.local.label_epsilon=2"],
            "each example of a unit",
        ),
    ];
    for (changes, about) in cases {
        bench.refused("refused", &set(changes), about);
    }
    let language =
        Bench::new("gpt2-causal-lm", "tokenizer-wordpiece", "task = \"language-modeling\"");
    language.refused("refused", &set(&["privacy.method=dp-forward"]), "classification");
    sentences.assert("forward");
}
