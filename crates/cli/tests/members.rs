//! Members are exactly the examples that a run could sample; units held out by `data.hold_out` are
//! non-members.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::Command;

fn audit(arguments: &[&str]) -> Value {
    let output =
        Command::new(env!("CARGO_BIN_EXE_undertone")).arg("audit").args(arguments).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

const BY_AUTHOR: [&str; 6] =
    ["--set", "data.author=who", "--set", "data.most_per_author=2", "--set", "training.batch=10"];

/// 40 people with three rows each, two of which are used for training.
#[test]
fn rows_that_a_run_never_draws_are_no_members() {
    let bench = Bench::classifier();
    let more = [&BY_AUTHOR[..], &["--set", "training.epochs=1"]].concat();
    bench.train("run", &more);
    let run = bench.path("run");
    let run = run.to_str().unwrap();
    let counts = |attacks: &Value| (attacks[0]["members"].as_u64(), attacks[0]["others"].as_u64());
    // The validation file is the same file here, and is read in full.
    let expected = (Some(80), Some(120));
    assert_eq!(counts(&audit(&["membership", "--json", "--run", run])), expected);
    // Naming the training file gives the same result.
    let rows = bench.path("rows.tsv");
    let named = ["membership", "--json", "--run", run, "--members", rows.to_str().unwrap()];
    assert_eq!(counts(&audit(&named)), expected);
    audit(&["all", "--json", "--run", run]);
    let kept: Value = serde_json::from_slice(&bench.bytes("run/audit.json")).unwrap();
    assert_eq!(counts(&kept["membership"]), expected);
    assert_eq!(kept["non_members"], "validation");
    // Shadow models sample users as well.
    let output = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["audit", "membership", "--json", "--shadows", "1", "--run", run])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(" users, "), "{said}");
}

/// A one-run audit includes the planned number of users in addition to the canaries.
#[test]
fn canaries_are_put_beside_users() {
    let bench = Bench::classifier();
    let (file, out) = (bench.path("run.toml"), bench.path("one"));
    let mut arguments = vec!["one-run", "--json", "--canaries", "10", "--guesses", "5"];
    arguments.extend(["--run", file.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    arguments.extend(BY_AUTHOR);
    audit(&arguments);
    let summary: Value = serde_json::from_slice(&bench.bytes("one/summary.json")).unwrap();
    let units = summary["resolved"]["units"].as_u64().unwrap();
    assert!((40..=50).contains(&units), "{units}");
}

/// Secrets in a row that is not used for training do not count as learned.
#[test]
fn extraction_looks_for_what_was_trained_on() {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-wordpiece", "task = \"language-modeling\"");
    let rows: String = (0..60)
        .map(|i| format!("the cat {}@example.org sat\tgood\tperson {}\n", name(i), i / 3))
        .collect();
    fs::write(bench.path("rows.tsv"), format!("sentence\tlabel\twho\n{rows}")).unwrap();
    // Short enough that nothing is truncated.
    let long = ["--set", "data.max_tokens=32", "--set", "training.epochs=1"];
    let sizes = ["--texts", "2", "--tokens", "4", "--kind", "email"];
    let in_training = |out: &str, more: &[&str]| -> u64 {
        bench.train(out, &[more, &long].concat());
        let run = bench.path(out);
        let attack = ["extraction", "--json", "--run", run.to_str().unwrap()];
        let results = audit(&[&attack[..], &sizes].concat());
        results[0]["in_training"].as_u64().unwrap() + results[0]["known_before"].as_u64().unwrap()
    };
    assert_eq!(in_training("all", &[]), 60);
    assert_eq!(in_training("users", &BY_AUTHOR), 40);
    let hold_out = [&BY_AUTHOR[..], &["--set", "data.hold_out=0.4", "--set", "training.batch=5"]];
    let count = in_training("held-out", &hold_out.concat());
    let summary: Value = serde_json::from_slice(&bench.bytes("held-out/summary.json")).unwrap();
    assert_eq!(count, 2 * summary["resolved"]["units"].as_u64().unwrap());
}

/// A distinct short word for each number.
fn name(i: usize) -> String {
    let letter = |i: usize| char::from(b'a' + (i % 26) as u8);
    [letter(i), letter(i / 26), letter(i * 7 + 3)].into_iter().collect()
}

/// Half the units are held out: δ, σ and the number of units are computed from the rest.
#[test]
fn units_that_are_held_out_are_the_non_members() {
    let bench = Bench::classifier();
    let rows: String = (0..120)
        .map(|i| format!("{} {}\t{}\tperson {}\n", WORDS[i % 8], i, ["bad", "good"][i % 2], i / 3))
        .collect();
    fs::write(bench.path("rows.tsv"), format!("sentence\tlabel\twho\n{rows}")).unwrap();
    let more = ["--set", "data.hold_out=0.25", "--set", "training.epochs=1"];
    let summary = bench.train("run", &more);
    let trained = summary["resolved"]["units"].as_u64().unwrap();
    // Within four standard deviations of 90.
    assert!((71..=109).contains(&trained), "{trained}");
    let rate = summary["resolved"]["sampling_rate"].as_f64().unwrap();
    assert!((rate - 20.0 / trained as f64).abs() < 1e-12);
    let run = bench.path("run");
    let run = run.to_str().unwrap();
    let attacks = audit(&["membership", "--json", "--run", run]);
    let counts = (attacks[0]["members"].as_u64().unwrap(), attacks[0]["others"].as_u64().unwrap());
    assert_eq!(counts, (trained, 120 - trained));
    let kept: Value = serde_json::from_slice(&bench.bytes("run/audit.json")).unwrap();
    assert_eq!(kept["non_members"], "held-out");
    let said = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["audit", "all", "--run", run])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("held out (data.hold_out)"), "{said}");
    // An additional row leaves the others on their side.
    let longer = format!("sentence\tlabel\twho\nanother first row\tbad\tperson 99\n{rows}");
    fs::write(bench.path("rows.tsv"), longer).unwrap();
    let units = bench.train("longer", &more)["resolved"]["units"].as_u64().unwrap();
    assert!(units == trained || units == trained + 1, "{units} beside {trained}");
    // For a non-private run that trained on them, they are not non-members.
    let open = ["--set", "privacy.method=none", "--unset", "privacy.epsilon"];
    bench.train("open", &[&open[..], &["--unset", "privacy.delta"]].concat());
    let open = bench.path("open");
    let refusal = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["audit", "all", "--run", run, "--non-private", open.to_str().unwrap()])
        .output()
        .unwrap();
    refused(&refusal, "trained on units that this run held out");
}

#[test]
fn mistakes_about_held_out_units_are_one_sentence() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    for share in ["100", "0", "0.6", "-0.1"] {
        let set = format!("data.hold_out={share}");
        bench.refused("run", &["--set", &set], "must be a share above 0 and at most 0.5");
    }
    let local = ["--set", "privacy.method=dp-forward", "--set", "model.tuning=head"];
    let local = [&local[..], &["--set", "data.hold_out=0.1"]].concat();
    bench.refused("run", &local, "data.hold_out is for central DP and non-private runs");
    let users = [&BY_AUTHOR[..], &["--set", "training.batch=50"]].concat();
    bench.refused("run", &users, "at most the number of users, 40");
    sentences.assert("members");
}
