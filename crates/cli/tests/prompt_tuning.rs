//! Prompt tuning from `train` to `eval`, `generate` and `merge`, and what Rap-FT makes of it.

use crate::bench::*;
use serde_json::Value;
use std::process::Command;

const PROMPT: [&str; 4] =
    ["--set", "model.tuning={ prompt = { tokens = 4 } }", "--set", "training.epochs=1"];

fn evaluated(bench: &Bench, out: &str) -> f64 {
    let (run_folder, data) = (bench.path(out), bench.path("rows.tsv"));
    let said = run(&[
        "eval",
        "--json",
        "--run",
        run_folder.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
    ]);
    serde_json::from_slice::<Value>(&said).unwrap()["loss"].as_f64().unwrap()
}

/// What was measured in training is measured again from the adapter folder, so that the virtual
/// tokens are saved, loaded and read.
#[test]
fn a_soft_prompt_is_trained_saved_and_used() {
    let bench = Bench::classifier();
    let trained = bench.train("prompted", &PROMPT);
    let loss = |summary: &Value| summary["metrics"]["validation"]["loss"].as_f64().unwrap();
    assert!((evaluated(&bench, "prompted") - loss(&trained)).abs() < 1e-4);
    assert!(trained["guarantee"]["epsilon"]["upper"].as_f64().unwrap() <= 8.0);
    let rap_ft = ["--set", "privacy.method=rap-ft"];
    let with_relevance = bench.train("rap-ft", &[&PROMPT[..], &rap_ft].concat());
    let relevance = with_relevance["relevance_by_parameter"].as_array().unwrap();
    assert!(relevance.iter().any(|tensor| tensor[0] == "prompt_embeddings"), "{relevance:?}");
    let merged = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["merge", "--run", bench.path("prompted").to_str().unwrap()])
        .args(["--out", bench.path("merged").to_str().unwrap()])
        .output()
        .unwrap();
    refused(&merged, "cannot be merged");
    bench.refused("long", &["--set", "model.tuning={ prompt = { tokens = 0 } }"], "tokens");
    let local = ["--set", "privacy.method=dp-forward"];
    bench.refused("local", &[&PROMPT[..], &local].concat(), "model.tuning.prompt is for gradient");
}

#[test]
fn a_language_model_generates_behind_its_soft_prompt() {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-bpe", "task = \"language-modeling\"");
    let trained = bench.train("prompted", &PROMPT);
    let expected = trained["metrics"]["validation"]["loss"].as_f64().unwrap();
    assert!((evaluated(&bench, "prompted") - expected).abs() < 1e-4);
    let folder = bench.path("prompted");
    let folder = folder.to_str().unwrap();
    let said = run(&["generate", "--run", folder, "--prompt", "the cat", "--max-new-tokens", "5"]);
    assert!(!said.is_empty());
}
