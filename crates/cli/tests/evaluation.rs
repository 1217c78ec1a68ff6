//! Metrics on private validation data: in the ledger, in the total, and as what stops a run.

use crate::bench::*;
use serde_json::Value;

const EVALUATION: [&str; 2] = ["--set", "evaluation.epsilon=2"];

fn released(summary: &Value) -> Vec<(u64, f64)> {
    let of =
        |metric: &Value| (metric["epoch"].as_u64().unwrap(), metric["accuracy"].as_f64().unwrap());
    summary["released_metrics"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn released_metrics_are_part_of_the_stated_epsilon() {
    let bench = Bench::classifier();
    let summary = bench.train("with", &EVALUATION);
    let epsilon = |summary: &Value| summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(epsilon(&summary) <= 8.0 && epsilon(&summary) > 7.9, "{}", epsilon(&summary));
    let metrics = released(&summary);
    assert_eq!(metrics.iter().map(|(epoch, _)| *epoch).collect::<Vec<_>>(), [1, 2]);
    assert!(metrics.iter().all(|(_, accuracy)| (0.0..=1.0).contains(accuracy)), "{metrics:?}");
    // The exact accuracy is private, and a released one is not it.
    let shared: Value = serde_json::from_slice(&bench.bytes("with/summary.json")).unwrap();
    assert!(shared["metrics"].is_null() && released(&shared) == metrics);
    let exact = summary["metrics"]["validation"]["accuracy"].as_f64().unwrap();
    assert_ne!(metrics[1].1, exact);
    // One entry for all metrics, before the steps; and less noise is left for the steps.
    let ledger = String::from_utf8(bench.bytes("with/ledger.jsonl")).unwrap();
    let first: Value = serde_json::from_str(ledger.lines().nth(1).unwrap()).unwrap();
    assert_eq!(first["spent"]["event"]["kind"], "gaussian");
    let without = bench.train("without", &[]);
    assert_eq!(ledger.lines().count(), 1 + 1 + without["steps"].as_u64().unwrap() as usize);
    let noise = |summary: &Value| summary["resolved"]["noise_multipliers"][0].as_f64().unwrap();
    assert!(noise(&summary) > noise(&without));
    let seldom =
        bench.train("seldom", &[&EVALUATION[..], &["--set", "evaluation.every=2"]].concat());
    assert_eq!(released(&seldom).len(), 1);
}

#[test]
fn released_metrics_stop_a_run_on_private_data() {
    let bench = Bench::classifier();
    let stop = ["--set", "training.stop_early={ patience = 1 }", "--set", "training.epochs=4"];
    let summary = bench.train("stopped", &[&EVALUATION[..], &stop].concat());
    let epsilon = summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(epsilon > 7.9 && epsilon <= 8.0, "all planned steps count: {epsilon}");
    let metrics = released(&summary);
    let kept = summary["early_stop"]["kept"].as_u64().unwrap();
    let best = metrics.iter().map(|(_, accuracy)| *accuracy).fold(0.0, f64::max);
    assert_eq!(metrics[kept as usize - 1].1, best, "{metrics:?}");
    bench.refused("no", &stop, "release metrics with noise by evaluation.epsilon");
}

/// A killed run makes the same releases again: the metrics are those of an unbroken run.
#[test]
fn a_resumed_run_releases_the_same_metrics() {
    let bench = Bench::classifier();
    let seeded = [&EVALUATION[..], &["--set", "training.seed=7"]].concat();
    let every = ["--set", "compute.checkpoint_every=5"];
    let whole = bench.train("whole", &seeded);
    bench.kill_after("killed", &[&seeded[..], &every].concat(), 8);
    let resumed = match bench.path("killed/summary.json").exists() {
        true => return,
        false => bench.resume("killed"),
    };
    assert_eq!(released(&resumed), released(&whole));
}
