//! `train` and `eval` truncate texts at the same length.

use crate::bench::*;

/// Texts are truncated where the run truncated them, whether the folder is of a model, an adapter
/// or a merged model; without a record, where `train` would by default.
#[test]
fn texts_are_cut_where_training_cut_them() {
    let bench = Bench::classifier();
    let lora = "model.tuning={ lora = { rank = 2, targets = [\"query\", \"value\"] } }";
    let short = ["--set", "data.max_tokens=5", "--set", "training.epochs=1"];
    let whole = bench.train("whole", &short);
    let adapted = bench.train("adapted", &[&short[..], &["--set", lora]].concat());
    let (base, data) = (bench.path("model"), bench.path("rows.tsv"));
    let (base, data) = (base.to_str().unwrap(), data.to_str().unwrap());
    let (model, adapter) = (bench.path("whole/model"), bench.path("adapted/adapter"));
    let (model, adapter) = (model.to_str().unwrap(), adapter.to_str().unwrap());
    let merged = bench.path("merged");
    let merged = merged.to_str().unwrap();
    run(&["merge", "--model", base, "--adapter", adapter, "--out", merged]);
    let loss = |arguments: &[&str]| -> f64 {
        let said = run(&[&["eval", "--json", "--data", data], arguments].concat());
        serde_json::from_slice::<serde_json::Value>(&said).unwrap()["loss"].as_f64().unwrap()
    };
    let of =
        |summary: &serde_json::Value| summary["metrics"]["validation"]["loss"].as_f64().unwrap();
    for (arguments, summary) in [
        (&["--model", model][..], &whole),
        (&["--model", base, "--adapter", adapter], &adapted),
        (&["--model", merged], &adapted),
    ] {
        let (measured, expected) = (loss(arguments), of(summary));
        assert!((measured - expected).abs() < 1e-4, "{arguments:?}: {measured} for {expected}");
        let longer = loss(&[arguments, &["--max-tokens", "16"]].concat());
        assert!((longer - expected).abs() > 1e-4, "{arguments:?}: the cut makes no difference");
    }
    assert_eq!(loss(&["--model", base]), loss(&["--model", base, "--max-tokens", "128"]));
    std::fs::write(bench.path("whole/model/undertone.json"), "{\"max_tokens\": 0}").unwrap();
    let wrong = std::process::Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["eval", "--model", model, "--data", data])
        .output()
        .unwrap();
    refused(&wrong, "max_tokens must be at least 1");
}
