//! `train` as called by people and scripts: private and non-private, interrupted and resumed, and
//! with invalid input.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_private_run_leaves_a_folder_that_proves_its_guarantee() {
    let bench = Bench::classifier();
    let summary = bench.train("run", &[]);
    assert_eq!(summary["private"], true);
    let guarantee = &summary["guarantee"];
    let (lower, upper) = (
        guarantee["epsilon"]["lower"].as_f64().unwrap(),
        guarantee["epsilon"]["upper"].as_f64().unwrap(),
    );
    assert!(lower <= upper && upper <= 8.0 && lower > 7.9, "{guarantee}");
    assert_eq!(
        (guarantee["unit"].as_str(), guarantee["mode"].as_str()),
        (Some("example"), Some("proved"))
    );
    assert!(summary["metrics"]["validation"]["accuracy"].is_number());
    assert!(summary["throughput"]["examples_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(summary["steps"], 12);
    // The ledger alone states the same, with one entry per step.
    let ledger = bench.path("run/ledger.jsonl");
    assert_eq!(fs::read_to_string(&ledger).unwrap().lines().count(), 13);
    let printed = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["budget", "ledger", ledger.to_str().unwrap(), "--delta", "1e-3"])
        .output()
        .unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    assert_eq!(String::from_utf8(bench.bytes("run/metrics.jsonl")).unwrap().lines().count(), 12);
    for file in [
        "plan.toml",
        "summary.json",
        "checkpoint.safetensors",
        "model/config.json",
        "model/model.safetensors",
    ] {
        assert!(bench.path("run").join(file).is_file(), "{file}");
    }
    assert!(!bench.path("run/secret.key").exists(), "nobody can subtract the noise");
    // The model is an ordinary one.
    let model = bench.path("run/model");
    let eval = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args([
            "eval",
            "--model",
            model.to_str().unwrap(),
            "--data",
            bench.path("rows.tsv").to_str().unwrap(),
            "--json",
        ])
        .output()
        .unwrap();
    let eval: Value = serde_json::from_slice(&eval.stdout).unwrap();
    assert_eq!(eval["accuracy"], summary["metrics"]["validation"]["accuracy"]);
}

/// In every line of the metrics, ε is what the ledger proves after that step, or at most 2 % more.
/// The first progress line shows ε, and the second one the remaining time, which excludes the first
/// step.
#[test]
fn epsilon_of_every_step_is_at_least_what_the_ledger_proves() {
    let bench = Bench::classifier();
    let set = ["--set", "training.batch=10", "--set", "privacy.schedule=linear"];
    let output = bench.command("run", &set).output().unwrap();
    let shown = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{shown}");
    let ledger = bench.path("run/ledger.jsonl");
    let proved = undertone_accounting::ledger::Ledger::history(ledger, 1e-3, 1_000).unwrap();
    let text = fs::read_to_string(bench.path("run/metrics.jsonl")).unwrap();
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((records.len(), proved.len()), (24, 24));
    for (record, (entries, guarantee)) in records.iter().zip(&proved) {
        let (said, truth) = (record["epsilon"].as_f64().unwrap(), guarantee.epsilon.upper);
        assert_eq!(record["step"], *entries);
        assert!(said >= truth && said <= 1.02 * truth, "step {entries}: {said}, not {truth}");
    }
    let line_of = |step: &str| {
        let line = shown.lines().find(|line| line.contains(step));
        line.unwrap_or_else(|| panic!("{step} is not shown in {shown}"))
    };
    let (first, second) = (line_of("step 1/24"), line_of("step 2/24"));
    assert!(first.contains(", ε ") && !first.contains(" left"), "{first}");
    assert!(second.contains(", ε ") && second.contains(" left"), "{second}");
}

#[test]
fn two_private_runs_differ_and_two_seeded_ones_do_not() {
    let bench = Bench::classifier();
    let weights = |out: &str| bench.bytes(&format!("{out}/model/model.safetensors"));
    bench.train("a", &["--set", "training.epochs=1"]);
    bench.train("b", &["--set", "training.epochs=1"]);
    assert_ne!(weights("a"), weights("b"), "noise comes from the system");
    let summary = bench.train("c", &["--set", "training.epochs=1", "--seed", "7"]);
    bench.train("d", &["--set", "training.epochs=1", "--seed", "7"]);
    assert_eq!(weights("c"), weights("d"));
    assert_eq!(summary["private"], false);
    assert!(summary["not_private_because"].as_str().unwrap().contains("seed"));
    // Its ledger alone says so too.
    let printed = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["budget", "ledger", "--delta", "1e-3"])
        .arg(bench.path("c/ledger.jsonl"))
        .output()
        .unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("no guarantee") && printed.contains("seed"), "{printed}");
    // Micro-batches of any size compute the same step, up to rounding, with the same noise.
    bench.train(
        "e",
        &["--set", "training.epochs=1", "--seed", "7", "--set", "compute.micro_batch=3"],
    );
    let numbers = |out: &str| bench.parameters(&format!("{out}/model/model.safetensors"));
    let furthest =
        numbers("c").iter().zip(numbers("e")).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    assert!(furthest < 2e-3, "micro-batches change nothing but the last digits: {furthest}");
}

/// Activation checkpointing, private and non-private: the same weights after the same steps.
#[test]
fn activations_that_are_computed_again_change_no_weight() {
    let bench = Bench::classifier();
    for method in ["dp-sgd", "none"] {
        let [kept, again] = ["false", "true"].map(|recompute| {
            let (out, recompute) =
                (format!("{method}-{recompute}"), format!("compute.recompute={recompute}"));
            let (method, mut set) = (format!("privacy.method={method}"), vec!["--seed", "3"]);
            set.extend(["--set", &method, "--set", &recompute, "--set", "training.epochs=1"]);
            if method.ends_with("none") {
                set.extend(["--unset", "privacy.epsilon", "--unset", "privacy.delta"]);
            }
            bench.train(&out, &set);
            bench.parameters(&format!("{out}/model/model.safetensors"))
        });
        assert!(kept == again, "{method}");
    }
}

/// A whole run compared with its ledger: how far the weights move, and how many units each step
/// samples. Fails if noise is left out or scaled wrongly, if gradients are not clipped, or if
/// batches are not drawn by Poisson sampling.
#[test]
fn a_run_adds_the_noise_and_draws_the_samples_that_its_ledger_holds() {
    let bench = Bench::classifier();
    // Far more noise than gradient: with σ of about 20 and a batch of 20, the noise of all
    // coordinates together is a hundred times longer than any sum of clipped gradients.
    let (clip, rate, batch) = (1e-3, 2.0, 20.0);
    let summary = bench.train(
        "run",
        &[
            "--set",
            "privacy.epsilon=0.1",
            "--set",
            "privacy.clip=1e-3",
            "--set",
            "training.optimizer=sgd",
            "--set",
            "training.momentum=0.0",
            "--set",
            "training.learning_rate=2.0",
            "--set",
            "training.learning_rate_schedule=constant",
            "--set",
            "training.weight_decay=0.0",
            "--set",
            "training.epochs=8",
        ],
    );
    let steps = summary["steps"].as_f64().unwrap();
    let noise = summary["resolved"]["noise_multipliers"][0].as_f64().unwrap();
    assert_eq!(steps, 48.0);
    let expected = rate * noise * clip / batch * steps.sqrt();
    let (before, after) = (
        bench.parameters("model/model.safetensors"),
        bench.parameters("run/model/model.safetensors"),
    );
    let moved: f64 = before.iter().zip(&after).map(|(x, y)| f64::from(y - x).powi(2)).sum();
    let std = (moved / before.len() as f64).sqrt();
    assert!((std / expected - 1.0).abs() < 0.04, "the weights moved by {std}, not by {expected}");
    // 48 draws of Binomial(120, 1/6): mean 20, variance 16.7. A fixed batch size has zero variance,
    // and other sampling rates have a different mean.
    let units: Vec<f64> =
        bench.metrics("run").iter().map(|record| record["units"].as_f64().unwrap()).collect();
    let mean = units.iter().sum::<f64>() / steps;
    let variance = units.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / (steps - 1.0);
    assert!(
        (mean - 20.0).abs() < 3.0 && (5.0..40.0).contains(&variance),
        "mean {mean}, variance {variance}"
    );
}

/// A run that is interrupted at several moments and resumed equals an uninterrupted one.
#[test]
fn a_killed_run_goes_on_as_if_nothing_had_happened() {
    let bench = Bench::classifier();
    let settings =
        ["--seed", "3", "--set", "training.epochs=12", "--set", "compute.checkpoint_every=5"];
    bench.train("whole", &settings);
    let mut interrupted = 0;
    for lines in [2, 9, 23] {
        let out = format!("killed-{lines}");
        if bench.kill_after(&out, &settings, lines) {
            interrupted += 1;
            bench.resume(&out);
        }
        bench.assert_same_runs(&out, "whole", "model/model.safetensors");
    }
    assert!(interrupted > 0, "at least one run was interrupted");
}

/// The same without a seed: the run's own secret is kept for its duration.
#[test]
fn a_private_run_is_resumed_within_its_budget() {
    let bench = Bench::classifier();
    let settings = ["--set", "training.epochs=12", "--set", "compute.checkpoint_every=4"];
    if !bench.kill_after("run", &settings, 6) {
        return;
    }
    // A missing secret, a different plan and different data are refused.
    fs::rename(bench.path("run/secret.key"), bench.path("key")).unwrap();
    bench.refused("run", &["--resume"], "secret");
    fs::write(bench.path("run/secret.key"), [7; 32]).unwrap();
    bench.resume_refused("run", "another secret");
    fs::rename(bench.path("key"), bench.path("run/secret.key")).unwrap();
    bench.refused(
        "run",
        &["--resume", "--set", "training.epochs=12", "--set", "privacy.epsilon=9"],
        "another plan",
    );
    let summary = bench.resume("run");
    assert!(summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap() <= 8.0);
    bench.refused("run", &["--resume"], "finished");
}

#[test]
fn every_way_of_tuning_trains_and_loads_again() {
    let bench = Bench::classifier();
    for tuning in [
        "head",
        "bitfit",
        "{ lora = { rank = 2, targets = [\"query\", \"value\"] } }",
        "{ lora = { rank = 2, freeze_a = true, init = \"singular\" } }",
        "{ lora = { rank = 2, b_rate = 4 } }",
        "{ adapter = { size = 4 } }",
    ] {
        let out = format!("run-{}", tuning.len());
        let set = format!("model.tuning={tuning}");
        let summary = bench.train(
            &out,
            &["--set", &set, "--set", "training.epochs=1", "--set", "privacy.clip=0.5"],
        );
        assert!(
            summary["parameters"]["trainable"].as_u64() < summary["parameters"]["total"].as_u64(),
            "{tuning}"
        );
        let eval = Command::new(env!("CARGO_BIN_EXE_undertone"))
            .args(["eval", "--json", "--model", bench.path("model").to_str().unwrap()])
            .args(["--data", bench.path("rows.tsv").to_str().unwrap()])
            .arg("--adapter")
            .arg(bench.path(&out).join("adapter"))
            .output()
            .unwrap();
        assert!(eval.status.success(), "{tuning}: {}", String::from_utf8_lossy(&eval.stderr));
        let eval: Value = serde_json::from_slice(&eval.stdout).unwrap();
        assert_eq!(eval["accuracy"], summary["metrics"]["validation"]["accuracy"], "{tuning}");
    }
}

/// The recipe counts the parameters of a model of shapes alone.
#[test]
fn the_recipe_completes_every_way_of_tuning() {
    let bench = Bench::classifier();
    for tuning in [
        "{ lora = { rank = 2, dora = true } }",
        "{ lora = { rank = 2, init = \"singular\", embeddings = true } }",
        "{ ia3 = {} }",
        "{ prompt = { tokens = 2 } }",
        "{ adapter = { size = 4 } }",
        "bitfit",
    ] {
        let set = format!("model.tuning={tuning}");
        let settings = ["--set", &set, "--unset", "training.learning_rate"];
        let settings = [&settings[..], &["--set", "training.epochs=1"]].concat();
        bench.train(&format!("auto-{}", tuning.len()), &settings);
    }
}

#[test]
fn language_models_users_schedules_and_open_runs() {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-bpe", "task = \"language-modeling\"");
    let summary = bench.train(
        "users",
        &[
            "--set",
            "data.author=who",
            "--set",
            "data.most_per_author=2",
            "--set",
            "training.batch=10",
        ],
    );
    assert_eq!(
        (summary["guarantee"]["unit"].as_str(), summary["resolved"]["units"].as_u64()),
        (Some("user"), Some(40))
    );
    assert!(summary["metrics"]["validation"]["perplexity"].as_f64().unwrap() > 1.0);
    let summary = bench.train(
        "ewpba",
        &["--set", "privacy.schedule=ewpba", "--set", "privacy.clip={ per_layer = 1.0 }"],
    );
    let noise: Vec<f64> = summary["resolved"]["noise_multipliers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_f64)
        .collect();
    assert!(noise.len() == 2 && noise[0] > noise[1], "{noise:?}");
    let run = String::from_utf8(bench.bytes("run.toml")).unwrap();
    let open = run
        .replace("dp-sgd", "none")
        .replace("epsilon = 8.0\ndelta = 1e-3\nclip = \"automatic\"\n", "");
    fs::write(bench.path("run.toml"), open).unwrap();
    for (out, optimizer) in [("sgd", "sgd"), ("corrected", "adam-corrected")] {
        let set = format!("training.optimizer={optimizer}");
        let summary = bench.train(
            out,
            &[
                "--set",
                &set,
                "--set",
                "training.learning_rate_schedule=cosine",
                "--set",
                "training.dropout=true",
            ],
        );
        assert_eq!(
            (summary["private"].as_bool(), summary["guarantee"].is_null()),
            (Some(false), true)
        );
    }
}

const LORA: &str = "model.tuning={ lora = { rank = 2, targets = [\"query\", \"value\"] } }";

/// Every method meets the same ε, with a schedule calibrated together with it.
#[test]
fn every_method_keeps_to_the_budget_with_any_schedule() {
    let bench = Bench::classifier();
    let public = format!(
        "privacy.rap_ft.relevance={{ public = {:?} }}",
        bench.public().display().to_string()
    );
    for (out, settings) in [
        ("anadp", vec!["privacy.method=anadp", "model.tuning=full", "privacy.anadp.form=element"]),
        (
            "anadp-factored",
            vec!["privacy.method=anadp", "model.tuning=full", "privacy.schedule=ewpba"],
        ),
        ("anadp-lora", vec!["privacy.method=anadp", LORA, "privacy.schedule=exponential"]),
        ("rap-ft", vec!["privacy.method=rap-ft", LORA, "privacy.schedule=ewpba"]),
        (
            "rap-ft-public",
            vec!["privacy.method=rap-ft", "model.tuning={ adapter = { size = 4 } }", &public],
        ),
        ("adaclip", vec!["privacy.method=adaclip", "model.tuning=bitfit", "privacy.schedule=step"]),
    ] {
        let changes: Vec<&str> = settings.iter().flat_map(|change| ["--set", change]).collect();
        let summary = bench.train(out, &changes);
        let upper = summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
        assert!(upper <= 8.0 && upper > 7.9, "{out}: {upper}");
        assert_eq!(
            (summary["private"].as_bool(), summary["guarantee"]["mode"].as_str()),
            (Some(true), Some("proved"))
        );
        let entries =
            fs::read_to_string(bench.path(out).join("ledger.jsonl")).unwrap().lines().count() - 1;
        // A noisy map is a separate release.
        assert_eq!(entries, if out == "rap-ft" { 13 } else { 12 }, "{out}");
        // If adaclip sees only noise, as in one of fifty such small runs, its noise is uniform and
        // there is nothing to draw.
        assert!(out == "adaclip" || bench.path(out).join("noise.svg").is_file(), "{out}");
        assert_eq!(
            bench.path(out).join("relevance.safetensors").is_file(),
            out.starts_with("rap-ft"),
            "{out}"
        );
    }
}

/// In paper mode a method prints its claim, and no guarantee.
#[test]
fn paper_mode_claims_and_guarantees_nothing() {
    let bench = Bench::classifier();
    for method in ["privacy.method=anadp", "privacy.method=rap-ft"] {
        let out = method.split_once('=').unwrap().1;
        let summary =
            bench.train(out, &["--set", method, "--set", "privacy.mode=paper", "--set", LORA]);
        assert_eq!(
            (summary["private"].as_bool(), summary["guarantee"]["mode"].as_str()),
            (Some(false), Some("paper"))
        );
        let claimed = summary["claimed"]["epsilon"].as_f64().unwrap();
        assert!(claimed <= 8.0 && claimed > 7.9, "{claimed}");
        let held = summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
        // ANADP's quietest coordinate costs more than claimed, Rap-FT's groups less.
        assert_eq!(held > claimed, out == "anadp", "{out}: {held} for a claim of {claimed}");
        let printed = Command::new(env!("CARGO_BIN_EXE_undertone"))
            .args(["budget", "ledger", "--delta", "1e-3"])
            .arg(bench.path(out).join("ledger.jsonl"))
            .output()
            .unwrap();
        assert!(String::from_utf8(printed.stdout).unwrap().contains("no guarantee"));
    }
}

/// The learned state of a method survives a crash.
#[test]
fn adaptive_methods_are_resumed_as_if_nothing_had_happened() {
    let bench = Bench::classifier();
    for method in ["anadp", "adaclip", "rap-ft"] {
        let method_key = format!("privacy.method={method}");
        let settings = [
            "--seed",
            "3",
            "--set",
            "training.epochs=12",
            "--set",
            "compute.checkpoint_every=5",
            "--set",
            &method_key,
            "--set",
            LORA,
            "--set",
            "privacy.clip=1.0",
        ];
        let whole = format!("{method}-whole");
        bench.train(&whole, &settings);
        let out = format!("{method}-killed");
        if bench.kill_after(&out, &settings, 12) {
            bench.resume(&out);
        }
        bench.assert_same_runs(&out, &whole, "adapter/adapter_model.safetensors");
    }
}

#[test]
fn mistakes_are_one_sentence() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    for (change, about) in [
        ("privacy.epsilon=0", "privacy.epsilon"),
        ("privacy.delta=0", "privacy.delta"),
        ("training.batch=1000", "batch"),
        ("data.train=nowhere.tsv", "nowhere.tsv"),
        ("data.text=missing", "missing"),
        ("model.path=./nowhere", "nowhere"),
        ("model.tuning=most", "most"),
        ("data.labels=[\"bad\", \"neutral\", \"x\"]", "good"),
        ("colour=red", "colour"),
        ("privacy.method=rap-ft", "lora, adapter, bitfit or head"),
        ("privacy.mode=paper", "as published"),
    ] {
        bench.refused("run", &["--set", change], about);
    }
    bench.refused("run", &["--resume"], "contains no run");
    let missing = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["train", "nowhere.toml", "--out", "x"])
        .output()
        .unwrap();
    refused(&missing, "nowhere.toml");
    sentences.assert("train");
}

#[test]
fn two_runs_in_one_folder_are_refused() {
    let bench = Bench::classifier();
    let mut first = bench
        .command("run", &["--set", "training.epochs=60"])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !bench.path("run/metrics.jsonl").exists() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    if first.try_wait().unwrap().is_none() {
        let second = bench.command("run", &["--resume"]).output().unwrap();
        if first.try_wait().unwrap().is_none() {
            refused(&second, "in use");
        }
    }
    first.kill().unwrap();
    first.wait().unwrap();
    bench.refused("run", &[], "already contains a run");
}

/// Repeated steps must be identical: a run that was refused because its ledger was missing resumes
/// with the same secret once the ledger is restored.
#[test]
fn a_run_keeps_its_secret_while_its_ledger_is_away() {
    let bench = Bench::classifier();
    // No checkpoint before the end.
    let settings = ["--set", "training.epochs=12", "--set", "compute.checkpoint_every=100000"];
    if !bench.kill_after("run", &settings, 6) {
        return;
    }
    let secret = fs::read(bench.path("run/secret.key")).unwrap();
    fs::rename(bench.path("run/ledger.jsonl"), bench.path("away")).unwrap();
    bench.resume_refused("run", "plan.toml says that the run has started");
    assert_eq!(fs::read(bench.path("run/secret.key")).unwrap(), secret, "the secret was replaced");
    fs::rename(bench.path("away"), bench.path("run/ledger.jsonl")).unwrap();
    let before = fs::read_to_string(bench.path("run/ledger.jsonl")).unwrap();
    bench.resume("run");
    let after = fs::read_to_string(bench.path("run/ledger.jsonl")).unwrap();
    assert!(after.starts_with(before.trim_end()), "the ledger goes on where it was");
}

/// A ledger that lacks releases would prove too small an ε.
#[test]
fn a_run_whose_ledger_is_lost_does_not_go_on() {
    let bench = Bench::classifier();
    let often = ["--set", "compute.checkpoint_every=2", "--set", "training.epochs=400"];
    assert!(bench.kill_after("run", &often, 8), "killed while at work");
    fs::remove_file(bench.path("run/ledger.jsonl")).unwrap();
    bench.resume_refused("run", "plan.toml says that the run has started");
    fs::remove_file(bench.path("run/ledger.jsonl.head")).unwrap();
    bench.resume_refused("run", "plan.toml says that the run has started");
}

/// A run does not start over even if everything it released is lost: the first model may be public.
#[test]
fn a_run_that_has_begun_does_not_start_over() {
    let bench = Bench::classifier();
    let slow = ["--set", "training.epochs=200"];
    assert!(bench.kill_after("run", &slow, 3), "it was too fast to be killed");
    for file in ["ledger.jsonl", "ledger.jsonl.head", "metrics.jsonl", "checkpoint.safetensors"] {
        let _ = fs::remove_file(bench.path("run").join(file));
    }
    bench.resume_refused("run", "plan.toml says that the run has started");
    for file in ["secret.key", "identity.json"] {
        fs::remove_file(bench.path("run").join(file)).unwrap();
    }
    bench.resume_refused("run", "plan.toml says that the run has started");
    // A run interrupted before its ledger was created is started again.
    let plan = fs::read_to_string(bench.path("run/plan.toml")).unwrap();
    let (before, mark) = plan.trim_end().rsplit_once('\n').unwrap();
    assert!(mark.starts_with("# The run has begun"), "{mark}");
    let short = before.replace("epochs = 200", "epochs = 1");
    fs::write(bench.path("run/plan.toml"), short).unwrap();
    assert_eq!(bench.resume("run")["private"], true);
}
