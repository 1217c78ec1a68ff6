//! Adaptive clipping through the command line.

use crate::bench::*;

const ADAPTIVE: [&str; 2] = ["--set", "privacy.clip={ adaptive = { initial = 50.0, rate = 1.0 } }"];

/// The clipping norm decreases from a value that is far too high, ε is the requested one, and the
/// noise-corrected optimizer is used.
#[test]
fn the_clipping_norm_moves_and_epsilon_is_kept() {
    let bench = Bench::classifier();
    for optimizer in ["training.optimizer=adam-corrected", "training.optimizer=sgd"] {
        let out = optimizer.rsplit('=').next().unwrap();
        let set = [&ADAPTIVE[..], &["--set", optimizer, "--set", "training.epochs=6"]].concat();
        let summary = bench.train(out, &set);
        assert_eq!(summary["private"], true);
        let epsilon = summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
        assert!(epsilon <= 8.0 && epsilon > 7.9, "{epsilon}");
        let clip: Vec<f64> =
            bench.metrics(out).iter().map(|record| record["clip"].as_f64().unwrap()).collect();
        assert_eq!((clip.len(), clip[0]), (36, 50.0));
        assert!(clip[35] < 25.0, "{clip:?}");
    }
}

/// The checkpoint contains the state of the clipping norm.
#[test]
fn a_killed_run_goes_on_with_its_clipping_norm() {
    let bench = Bench::classifier();
    let more =
        ["--set", "training.epochs=30", "--set", "compute.checkpoint_every=7", "--seed", "4"];
    let set = [&ADAPTIVE[..], &more].concat();
    bench.train("whole", &set);
    assert!(bench.kill_after("killed", &set, 12));
    bench.resume("killed");
    bench.assert_same_runs("killed", "whole", "model/model.safetensors");
}

#[test]
fn adaptive_clipping_is_refused_where_it_has_no_meaning() {
    let bench = Bench::classifier();
    let with = |set: &[&str], about: &str| {
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", *set]).collect();
        bench.refused("out", &set, about);
    };
    let adaptive = "privacy.clip={ adaptive = {} }";
    with(&[adaptive, "privacy.method=anadp"], "is for the method dp-sgd");
    with(&[adaptive, "privacy.method=dp-forward"], "privacy.clip in local DP is a number");
    with(&["privacy.clip={ adaptive = { quantile = 1.5 } }"], "privacy.clip.adaptive.quantile");
    with(&["privacy.clip={ adaptive = { speed = 1.5 } }"], "clip is \"automatic\"");
    let quiet = "privacy.clip={ adaptive = { noise = 1.0 } }";
    with(&[quiet, "privacy.epsilon=0.1"], "alone would spend the budget");
}
