//! Early stopping on a public validation file: which epoch is kept, what it costs, and what is
//! refused.

use crate::bench::*;
use serde_json::Value;
use std::fs;

/// A bench with its own validation file, whose wrong labels make the model look worse over time.
fn bench() -> (Bench, String) {
    let bench = Bench::classifier();
    let rows = fs::read_to_string(bench.path("rows.tsv")).unwrap();
    let wrong = rows.replace("\tbad\t", "\tx\t").replace("\tgood\t", "\tbad\t");
    let file = bench.path("public.tsv");
    fs::write(&file, wrong.replace("\tx\t", "\tgood\t")).unwrap();
    let validation = format!("data.validation={:?}", file.display().to_string());
    (bench, validation)
}

fn accuracies(bench: &Bench, out: &str) -> Vec<f64> {
    let records = bench.metrics(out);
    let measured = records.iter().filter_map(|record| record["validation"]["accuracy"].as_f64());
    measured.collect()
}

/// The epoch, starting at 1, after which the rule stops, and the first best epoch until then.
fn by_hand(accuracies: &[f64], patience: usize) -> (usize, usize) {
    let mut best = 0;
    for epoch in 0..accuracies.len() {
        if accuracies[epoch] > accuracies[best] {
            best = epoch;
        }
        if epoch - best >= patience {
            return (epoch + 1, best + 1);
        }
    }
    (accuracies.len(), best + 1)
}

const STOP: [&str; 4] = ["--set", "data.validation_is_public=true", "--set", "training.epochs=12"];

#[test]
fn a_run_stops_and_costs_what_was_planned() {
    let (bench, validation) = bench();
    let whole = [&STOP[..], &["--set", &validation, "--seed", "5"]].concat();
    let full = bench.train("full", &whole);
    let set = [&whole[..], &["--set", "training.stop_early={ patience = 2 }"]].concat();
    let stopped = bench.train("stopped", &set);
    let all = accuracies(&bench, "full");
    assert_eq!(all.len(), 12);
    let (epochs, kept) = by_hand(&all, 2);
    assert!(epochs < 12, "wrong labels make it worse: {all:?}");
    // The same steps as without the rule, but fewer.
    assert_eq!(accuracies(&bench, "stopped"), all[..epochs]);
    assert_eq!(stopped["steps"], 6 * epochs);
    assert_eq!(stopped["early_stop"]["epochs"], epochs);
    assert_eq!(stopped["early_stop"]["kept"], kept);
    assert_eq!(stopped["metrics"]["validation"]["accuracy"], all[kept - 1]);
    // ε covers all planned steps according to the ledger, which the report and the finished folder
    // verify.
    assert_eq!(stopped["guarantee"]["epsilon"], full["guarantee"]["epsilon"]);
    let entries = |out: &str| {
        fs::read_to_string(bench.path(out).join("ledger.jsonl")).unwrap().lines().count()
    };
    assert_eq!(entries("stopped"), entries("full"));
    let selection = stopped["selection"].as_str().unwrap();
    for part in [
        "declared to be public",
        &format!("stop after epoch {epochs} of 12"),
        &format!("weights of epoch {kept}"),
        "all planned steps",
    ] {
        assert!(selection.contains(part), "{part}: {selection}");
    }
    let assumptions = stopped["guarantee"]["assumptions"].to_string();
    assert!(assumptions.contains("public.tsv is public and does not depend"), "{assumptions}");
    let report = bench.path("report.html");
    run(&["report", bench.path("stopped").to_str().unwrap(), "--out", report.to_str().unwrap()]);
    // The kept weights are those of that epoch: they equal a run of `kept` epochs with the noise of
    // the longer plan.
    let noise = &stopped["resolved"]["noise_multipliers"][0];
    let noise = format!("privacy.noise_multiplier={noise}");
    let shorter = format!("training.epochs={kept}");
    let short = ["--unset", "privacy.epsilon", "--set", &noise, "--set", &validation];
    let short = [&short[..], &["--set", &shorter, "--seed", "5"]].concat();
    bench.train("short", &short);
    let weights = |out: &str| bench.bytes(&format!("{out}/model/model.safetensors"));
    assert!(weights("short") == weights("stopped"), "the weights of epoch {kept}");
    let last = "training.stop_early={ patience = 2, keep = \"last\" }";
    let last = bench.train("last", &[&whole[..], &["--set", last]].concat());
    assert_eq!(last["early_stop"]["kept"], epochs);
    assert!(weights("last") != weights("stopped"), "epoch {epochs} is not epoch {kept}");
}

#[test]
fn a_stopped_run_resumes_as_if_it_had_not_been_broken_off() {
    let (bench, validation) = bench();
    let stop = "training.stop_early={ patience = 4 }";
    let every = "compute.checkpoint_every=4";
    let set = ["--set", &validation, "--seed", "5", "--set", stop, "--set", every];
    let set = [&STOP[..], &set].concat();
    let whole = bench.train("whole", &set);
    for steps in [3, 11, 25] {
        let out = format!("broken-{steps}");
        if !bench.kill_after(&out, &set, steps) {
            continue;
        }
        let resumed = bench.resume(&out);
        assert_eq!(resumed["early_stop"], whole["early_stop"]);
        assert_eq!(resumed["guarantee"]["epsilon"], whole["guarantee"]["epsilon"]);
        bench.assert_same_runs(&out, "whole", "model/model.safetensors");
    }
}

#[test]
fn what_would_be_a_leak_or_has_no_effect_is_refused() {
    let sentences = Sentences::start();
    let (bench, validation) = bench();
    let stop = ["--set", "training.stop_early={ patience = 2 }"];
    let public = ["--set", "data.validation_is_public=true"];
    let file = ["--set", validation.as_str()];
    bench.refused("no", &[&stop[..], &file].concat(), "data.validation_is_public = true");
    bench.refused("no", &[&stop[..], &public].concat(), "is the private training file");
    bench.refused("no", &[&stop[..], &["--unset", "data.validation"]].concat(), "data.validation");
    bench.refused(
        "no",
        &[&public[..], &["--unset", "data.validation"]].concat(),
        "data.validation",
    );
    let none = ["--set", "training.stop_early={ patience = 0 }"];
    bench.refused("no", &[&none[..], &public, &file].concat(), "training.stop_early.patience");
    let paper = ["--set", "privacy.method=anadp", "--set", "privacy.mode=paper"];
    bench.refused("no", &[&stop[..], &public, &file, &paper].concat(), "mode = \"proved\"");
    let local = ["--set", "privacy.method=dp-forward", "--set", "model.tuning=head"];
    bench.refused("no", &[&stop[..], &public, &file, &local].concat(), "learn by gradients");
    let plain =
        ["--set", "privacy.method=none", "--unset", "privacy.epsilon", "--unset", "privacy.delta"];
    bench.refused("no", &[&stop[..], &public, &file, &plain].concat(), "data.validation_is_public");
    // A non-private run needs no declaration.
    let summary = bench.train("plain", &[&stop[..], &file, &plain, &["--seed", "1"]].concat());
    assert!(summary["early_stop"]["epochs"].as_u64().is_some(), "{summary}");
    let missing: Option<&Value> = summary.get("guarantee").filter(|guarantee| !guarantee.is_null());
    assert!(missing.is_none());
    sentences.assert("early_stop");
}
