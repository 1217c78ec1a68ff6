//! `privacy.sampling = "examples"`: steps sample examples, and the guarantee is for users.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::Command;

/// 40 people with three rows each, two of which are used.
const EXAMPLES: [&str; 6] = [
    "--set",
    "data.author=who",
    "--set",
    "data.most_per_author=2",
    "--set",
    "privacy.sampling=examples",
];

fn done(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn ledger(bench: &Bench, run: &str) -> Vec<Value> {
    let text = String::from_utf8(bench.bytes(&format!("{run}/ledger.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn rate_and_steps_are_of_examples_and_the_guarantee_is_of_users() {
    let bench = Bench::classifier();
    let summary = bench.train("run", &[&EXAMPLES[..], &["--set", "training.epochs=5"]].concat());
    let resolved = &summary["resolved"];
    assert_eq!(resolved["units"], 40);
    assert_eq!(resolved["examples"], serde_json::json!({ "number": 80, "per_user": 2 }));
    assert_eq!(
        (&resolved["sampling_rate"], &resolved["steps_per_epoch"]),
        (&0.25.into(), &4.into())
    );
    let guarantee = &summary["guarantee"];
    assert_eq!(guarantee["unit"], "user");
    let epsilon = guarantee["epsilon"]["upper"].as_f64().unwrap();
    assert!(epsilon <= 8.0 && epsilon > 7.9, "{epsilon}");
    let lines = ledger(&bench, "run");
    assert_eq!(lines.len(), 1 + 20);
    let terms = &lines[0]["terms"];
    assert_eq!((&terms["unit"], &terms["run"]["examples_per_user"]), (&"user".into(), &2.into()));
    let public = "the number of users in the training file (40) and that of their examples (80), at \
                  most 2 each, are public";
    assert!(terms["assumptions"].as_array().unwrap().contains(&public.into()), "{terms}");
    for line in &lines[1..] {
        let event = &line["spent"]["event"];
        assert_eq!(event["kind"], "mixture-of-gaussians");
        assert_eq!(
            (&event["sampling_rate"], &event["examples_per_user"]),
            (&0.25.into(), &2.into())
        );
        assert_eq!(event["noise_multiplier"], resolved["noise_multipliers"][0]);
    }
    // A step has 20 examples on average.
    let metrics = bench.metrics("run");
    let drawn: f64 = metrics.iter().map(|record| record["units"].as_f64().unwrap()).sum();
    assert!((drawn / 20.0 - 20.0).abs() < 5.0 * (15.0_f64 / 20.0).sqrt(), "{drawn}");
    // With one example of each user, the noise is that of ordinary DP-SGD on 40 rows.
    let one = ["--set", "data.most_per_author=1", "--set", "training.batch=10"];
    let one = bench.train("one", &[&EXAMPLES[..], &one].concat());
    let users = ["--set", "data.author=who", "--set", "training.batch=10"];
    let users = bench.train("users", &users);
    let noise = |summary: &Value| summary["resolved"]["noise_multipliers"].clone();
    assert_eq!(noise(&one), noise(&users));
    // The level is shown wherever the guarantee is.
    let run = bench.path("run");
    let run = run.to_str().unwrap();
    let shown = done(&["budget", "ledger", run]);
    assert!(shown.contains("user, with at most 2 examples sampled one by one"), "{shown}");
    let card = String::from_utf8(bench.bytes("run/model/README.md")).unwrap();
    assert!(card.contains("examples one by one, at most 2 of each user"), "{card}");
    let report = bench.path("report.html");
    done(&["report", run, "--out", report.to_str().unwrap()]);
    let report = fs::read_to_string(report).unwrap();
    assert!(report.contains("Poisson sampling of examples"));
    let file = bench.path("run.toml");
    let arguments = ["train", file.to_str().unwrap(), "--dry-run"];
    let dry = done(&[&arguments[..], &EXAMPLES].concat());
    assert!(dry.contains("examples one by one, at most 2 of each user"), "{dry}");
    assert!(dry.contains("0.25000"), "{dry}");
    crate::shareable::assert_all_listed(&bench.path("run"));
    let refused = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["budget", "certify", run, "--out"])
        .arg(bench.path("certificate.json"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("sampled one by one"), "{said}");
}

/// Killed and resumed, a run repeats the same releases; so does one with metrics of its own.
#[test]
fn a_killed_run_goes_on_with_the_same_noise() {
    let bench = Bench::classifier();
    let more = [
        "--set",
        "training.epochs=30",
        "--set",
        "compute.checkpoint_every=7",
        "--set",
        "evaluation.epsilon=2",
        "--seed",
        "4",
    ];
    let set = [&EXAMPLES[..], &more].concat();
    let summary = bench.train("whole", &set);
    assert_eq!(ledger(&bench, "whole")[1]["spent"]["event"]["kind"], "gaussian");
    assert_eq!(summary["released_metrics"].as_array().unwrap().len(), 30);
    assert!(bench.kill_after("killed", &set, 12));
    bench.resume("killed");
    bench.assert_same_runs("killed", "whole", "model/model.safetensors");
}

/// A stopped run states the ε of its plan with the same events.
#[test]
fn the_plan_of_an_unfinished_run_is_of_users() {
    let bench = Bench::classifier();
    let more = ["--set", "training.epochs=200"];
    assert!(bench.kill_after("killed", &[&EXAMPLES[..], &more].concat(), 12));
    let killed = bench.path("killed");
    let shown = done(&["budget", "ledger", killed.to_str().unwrap(), "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let planned = shown["guarantee_of_plan"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(planned <= 8.01 && planned > 7.9, "{planned}");
    assert!(shown["guarantee"]["epsilon"]["upper"].as_f64().unwrap() < 0.5 * planned);
}

#[test]
fn the_recipe_takes_delta_from_users_and_the_batch_from_examples() {
    let bench = Bench::classifier();
    let open =
        ["--unset", "privacy.delta", "--unset", "training.batch", "--unset", "training.epochs"];
    let examples = bench.train("examples", &[&EXAMPLES[..], &open].concat());
    let users = bench.train("users", &[&EXAMPLES[..4], &open].concat());
    let batch = |summary: &Value| summary["plan"]["training"]["batch"].as_u64().unwrap();
    let delta = |summary: &Value| summary["plan"]["privacy"]["delta"].clone();
    assert_eq!((batch(&examples), batch(&users)), (16, 8));
    assert_eq!(delta(&examples), delta(&users));
}

/// The calculator has the same figures as a run.
#[test]
fn the_calculator_calibrates_to_users() {
    let steps = ["--sampling-rate", "0.25", "--steps", "8", "--examples-per-user", "2"];
    let ask = |verb: &[&str], more: &[&str]| -> Value {
        let arguments = [&["budget"], verb, &steps, more, &["--delta", "1e-3", "--json"]].concat();
        serde_json::from_str(&done(&arguments)).unwrap()
    };
    let noise = ask(&["noise"], &["--epsilon", "8"])["noise_multiplier"].as_f64().unwrap();
    let bench = Bench::classifier();
    let of_run = &bench.train("run", &EXAMPLES)["resolved"]["noise_multipliers"][0];
    assert!((noise / of_run.as_f64().unwrap() - 1.0).abs() < 1e-3, "{noise} {of_run}");
    let back = ask(&["epsilon"], &["--noise-multiplier", &noise.to_string()]);
    let upper = back["epsilon"]["upper"].as_f64().unwrap();
    assert!((7.9..=8.001).contains(&upper), "{upper}");
    let sentences = Sentences::start();
    for verb in [
        &["epsilon", "--phase", "1,0.1,3"][..],
        &["epsilon", "--noise-multiplier", "2", "--releases", "3"],
        &["noise", "--epsilon", "8", "--releases", "3"],
        &["selection", "--noise-multiplier", "2", "--sampling-rate", "0.1", "--steps", "4"],
    ] {
        let per_user = ["--examples-per-user", "2", "--delta", "1e-5"];
        let arguments = [&["budget"], verb, &per_user].concat();
        let output = Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output();
        refused(&output.unwrap(), "--examples-per-user is for the steps of one training run");
    }
    sentences.assert("examples_per_user");
}

#[test]
fn example_sampling_is_refused_where_it_is_not_proved() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    let with = |set: &[&str], about: &str| {
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", *set]).collect();
        bench.refused("out", &[&EXAMPLES[..], &set].concat(), about);
    };
    let alone = ["--set", "privacy.sampling=examples"];
    bench.refused("out", &alone, "privacy.sampling is for runs with data.author");
    for method in ["anadp", "adaclip", "rap-ft", "dp-forward", "ew-ft", "mvg"] {
        let method = format!("privacy.method={method}");
        with(&[&method], "privacy.sampling is for the method dp-sgd");
    }
    let open = ["--set", "privacy.method=none", "--unset", "privacy.epsilon"];
    bench.refused("out", &[&EXAMPLES[..], &open].concat(), "for the method dp-sgd");
    with(&["privacy.mode=paper"], "privacy.mode = \"paper\" is for methods");
    with(&["privacy.correlation={ bands = 4 }"], "without privacy.sampling = \"examples\"");
    with(&["privacy.units=40"], "privacy.units is for runs without privacy.sampling");
    with(&["privacy.clip={ adaptive = {} }"], "one clipping norm for all steps");
    with(&["data.most_per_author=257"], "data.most_per_author is 257, but must be at most 256");
    with(&["training.batch=81"], "between 1 and the number of examples, 80");
    with(&["privacy.sampling=rows"], "privacy.sampling");
    sentences.assert("example_sampling");
}
