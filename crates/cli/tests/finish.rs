//! `train --finish`: writes the model of a stopped run, with its guarantee.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

const LORA: [&str; 2] = ["--set", "model.tuning={ lora = { rank = 2 } }"];

fn finish(bench: &Bench, out: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.args(["train", "--finish", "--json", "--out"]).arg(bench.path(out)).output().unwrap()
}

fn finished(bench: &Bench, out: &str) -> Value {
    let output = finish(bench, out);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn upper(guarantee: &Value) -> f64 {
    guarantee["epsilon"]["upper"].as_f64().unwrap()
}

/// The adapter is the averaged one of the checkpoint; ε is the ledger's, and the plan's ε is
/// stated.
#[test]
fn a_stopped_run_is_finished_with_the_epsilon_of_its_steps() {
    let bench = Bench::classifier();
    let long = ["--set", "training.epochs=100", "--set", "compute.checkpoint_every=6"];
    let same = ["--seed", "5", "--set", "training.average={ ema = 0.9 }"];
    let long = [&long[..], &LORA, &same].concat();
    assert!(bench.kill_after("run", &long, 8), "it was too fast to be killed");
    let summary = finished(&bench, "run");
    let steps = summary["steps"].as_u64().unwrap();
    assert!(steps >= 6 && steps.is_multiple_of(6) && steps < 600, "{steps}");
    assert_eq!(bench.metrics("run").len() as u64, steps, "metrics of later steps are dropped");
    let stopped = &summary["stopped"];
    assert_eq!(stopped["planned_steps"], 600);
    let (taken, planned) = (upper(&summary["guarantee"]), upper(&stopped["guarantee_of_plan"]));
    assert!(taken < 4.0 && planned > 7.9 && planned <= 8.0, "{taken} of {planned}");
    assert!(summary["guarantee"]["assumptions"].to_string().contains("not stopped because of"));
    assert!(!stopped["guarantee_of_plan"]["assumptions"].to_string().contains("not stopped"));
    let run_folder = bench.path("run").display().to_string();
    let ledger = run(&["budget", "ledger", "--json", &run_folder]);
    let ledger: Value = serde_json::from_slice(&ledger).unwrap();
    assert_eq!(upper(&ledger["guarantee"]), taken, "releases after the checkpoint count, too");
    // The weights equal those of a plan with only these steps and the same noise.
    let noise = &summary["resolved"]["noise_multipliers"][0];
    let noise = format!("privacy.noise_multiplier={noise}");
    let epochs = format!("training.epochs={}", steps / 6);
    let short = ["--unset", "privacy.epsilon", "--set", &noise, "--set", &epochs];
    let whole = bench.train("short", &[&short[..], &LORA, &same].concat());
    assert!(whole.get("stopped").is_none());
    let weights = |out: &str| bench.bytes(&format!("{out}/adapter/adapter_model.safetensors"));
    assert!(weights("run") == weights("short"), "the averages of step {steps}");
    let card = String::from_utf8(bench.bytes("run/adapter/README.md")).unwrap();
    assert!(card.contains(&format!("{steps} of 600 planned")), "{card}");
    // The run is finished, and other commands treat it as such.
    bench.resume_refused("run", "is finished");
    refused(&finish(&bench, "run"), "is finished");
    let report = bench.path("report.md").display().to_string();
    run(&["report", &run_folder, "--out", &report]);
    let report = fs::read_to_string(report).unwrap();
    assert!(report.contains("stopped before its last planned step"), "{report}");
    // A summary that states a different plan is rejected.
    let path = bench.path("run/summary.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"planned_steps\": 600", "\"planned_steps\": 700")).unwrap();
    let report = bench.path("other.md").display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    let output = command.args(["report", &run_folder, "--out", &report]).output().unwrap();
    refused(&output, "has other units, steps or noise");
}

/// A private run states the caveat in its card and on the screen.
#[test]
fn a_finished_private_run_says_when_its_epsilon_holds() {
    let bench = Bench::classifier();
    let long = ["--set", "training.epochs=100", "--set", "compute.checkpoint_every=3"];
    let late = ["--set", "training.average={ last = 0.1 }"];
    assert!(bench.kill_after("run", &[&long[..], &LORA, &late].concat(), 4), "it was too fast");
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    let output = command.args(["train", "--finish", "--out"]).arg(bench.path("run")).output();
    let output = output.unwrap();
    let (said, noted) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{noted}");
    assert!(noted.contains("the average of the weights had not begun"), "{noted}");
    assert!(said.contains("of 600 steps") && said.contains("whole plan counts: (7.9"), "{said}");
    let card = String::from_utf8(bench.bytes("run/adapter/README.md")).unwrap();
    assert!(card.contains("The run was stopped before its last planned step"), "{card}");
    assert!(!bench.path("run/secret.key").exists());
}

/// In local DP the steps of an epoch cost nothing, so there is no caveat.
#[test]
fn a_local_run_that_is_finished_has_paid_for_its_epochs() {
    let bench = Bench::classifier();
    let long = ["--set", "training.epochs=100", "--set", "compute.checkpoint_every=6"];
    let local = ["--set", "privacy.method=dp-forward", "--set", "model.tuning=head"];
    let steps = ["--set", "privacy.local.learn=gradient"];
    let all = [&long[..], &local, &steps].concat();
    assert!(bench.kill_after("run", &all, 8), "it was too fast");
    let summary = finished(&bench, "run");
    assert!(summary["stopped"]["planned_steps"].as_u64().unwrap() >= 600);
    assert!(summary["stopped"].get("guarantee_of_plan").is_none(), "{}", summary["stopped"]);
    run(&["budget", "ledger", bench.path("run").to_str().unwrap()]);
}

#[test]
fn a_run_without_a_checkpoint_is_not_finished() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    let long = ["--set", "training.epochs=100", "--set", "compute.checkpoint_every=100000"];
    assert!(bench.kill_after("run", &long, 3), "it was too fast to be killed");
    refused(&finish(&bench, "run"), "has no checkpoint");
    refused(&finish(&bench, "nothing"), "contains no run to resume or finish");
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    refused(&command.args(["train", "--finish"]).output().unwrap(), "--out DIR");
    bench.refused("run", &["--finish"], "cannot be used with");
    sentences.assert("finish");
}
