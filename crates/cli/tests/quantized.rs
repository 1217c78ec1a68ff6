//! A base model in NF4, through the command line.

use crate::bench::*;
use serde_json::Value;
use std::fs;

const LORA: [&str; 4] = [
    "--set",
    "model.tuning={ lora = { rank = 4, targets = \"all-linear\" } }",
    "--set",
    "model.quantize=nf4",
];

fn loss(bench: &Bench, arguments: &[&str]) -> f64 {
    let data = bench.path("rows.tsv");
    let mut all = vec!["eval", "--data", data.to_str().unwrap(), "--json"];
    all.extend(arguments);
    let answer: Value = serde_json::from_slice(&run(&all)).unwrap();
    answer["loss"].as_f64().unwrap()
}

/// LoRA is trained on the rounded base model, and later evaluation and merging use that model.
#[test]
fn an_adapter_belongs_to_the_quantized_base() {
    let bench = Bench::classifier();
    let summary = bench.train("run", &LORA);
    let epsilon = summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(epsilon <= 8.0 && epsilon > 7.0, "{epsilon}");
    let trained = summary["metrics"]["validation"]["loss"].as_f64().unwrap();
    let adapter = bench.path("run/adapter");
    assert_eq!(fs::read_to_string(adapter.join("quantize.json")).unwrap().trim(), "\"nf4\"");
    let [model, adapter, merged] = [bench.path("model"), adapter, bench.path("merged")]
        .map(|path| path.to_str().unwrap().to_owned());
    let beside = loss(&bench, &["--model", &model, "--adapter", &adapter]);
    assert!((beside - trained).abs() < 1e-5, "{beside} and {trained}");
    run(&["merge", "--model", &model, "--adapter", &adapter, "--out", &merged]);
    let inside = loss(&bench, &["--model", &merged]);
    assert!((inside - trained).abs() < 1e-4, "{inside} and {trained}");
    // The rounding has an effect: on the unrounded base model the loss differs.
    fs::remove_file(bench.path("run/adapter/quantize.json")).unwrap();
    let unrounded = loss(&bench, &["--model", &model, "--adapter", &adapter]);
    assert!((unrounded - trained).abs() > 1e-6, "{unrounded} and {trained}");
}

#[test]
fn a_quantized_base_is_refused_where_weights_are_trained() {
    let bench = Bench::classifier();
    let nf4 = "model.quantize=nf4";
    bench.refused("out", &["--set", nf4], "model.quantize is for model.tuning other than");
    let local = [&LORA[..], &["--set", "privacy.method=dp-forward"]].concat();
    bench.refused("out", &local, "model.quantize is for gradient methods");
    let unknown = [&LORA[..2], &["--set", "model.quantize=nf5"]].concat();
    bench.refused("out", &unknown, "nf4");
}
