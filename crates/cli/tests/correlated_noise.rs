//! Correlated noise (BandMF) through the command line.

use crate::bench::*;
use std::fs;

const BANDS: [&str; 4] =
    ["--set", "privacy.correlation={ bands = 4 }", "--set", "training.optimizer=sgd"];

/// One ledger entry for every four steps, at four times the sampling rate; the target ε is spent;
/// and each unit is sampled only in one group of steps.
#[test]
fn a_block_of_steps_is_one_entry() {
    let bench = Bench::classifier();
    let summary = bench.train("run", &[&BANDS[..], &["--set", "training.epochs=3"]].concat());
    assert_eq!((&summary["steps"], &summary["private"]), (&18.into(), &true.into()));
    let epsilon = summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(epsilon <= 8.0 && epsilon > 7.9, "{epsilon}");
    let ledger = fs::read_to_string(bench.path("run/ledger.jsonl")).unwrap();
    assert_eq!(ledger.lines().count(), 1 + 5, "18 steps are five blocks");
    let rate = summary["resolved"]["sampling_rate"].as_f64().unwrap();
    assert!((rate - 4.0 * 20.0 / 120.0).abs() < 1e-9, "{rate}");
    let units: f64 =
        bench.metrics("run").iter().map(|record| record["units"].as_f64().unwrap()).sum();
    // 20 units per step on average.
    assert!((units / 18.0 - 20.0).abs() < 5.0 * (20.0_f64 / 18.0).sqrt(), "{units}");
}

/// Killed in the middle of a block, a run resumes with the same noise and accounts for it once.
#[test]
fn a_killed_run_goes_on_with_the_same_noise() {
    let bench = Bench::classifier();
    let more =
        ["--set", "training.epochs=30", "--set", "compute.checkpoint_every=7", "--seed", "4"];
    let set = [&BANDS[..], &more].concat();
    bench.train("whole", &set);
    assert!(bench.kill_after("killed", &set, 12));
    bench.resume("killed");
    bench.assert_same_runs("killed", "whole", "model/model.safetensors");
}

#[test]
fn correlated_noise_is_refused_where_it_has_no_meaning() {
    let bench = Bench::classifier();
    let with = |set: &[&str], about: &str| {
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", *set]).collect();
        bench.refused("out", &set, about);
    };
    let bands = "privacy.correlation={ bands = 4 }";
    with(&[bands, "privacy.method=anadp"], "[privacy.correlation] is for the method dp-sgd");
    with(&[bands, "privacy.schedule=linear"], "is for the uniform schedule");
    with(&[bands, "privacy.clip={ adaptive = {} }"], "one clipping norm for all steps");
    with(&["privacy.correlation={ bands = 1 }"], "privacy.correlation.bands is 1");
    with(&["privacy.correlation={ bands = 7 }"], "but there are 120 units");
}
