//! Methods that perturb embeddings, through the command line: what they promise, train and refuse.

mod mvg;
mod noise;
mod private_use;
mod published;

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::Command;

const HEAD: [&str; 2] = ["--set", "model.tuning=head"];

fn set<'a>(changes: &[&'a str]) -> Vec<&'a str> {
    changes.iter().flat_map(|change| ["--set", *change]).collect()
}

fn entries(bench: &Bench, out: &str) -> Vec<Value> {
    let text = fs::read_to_string(bench.path(out).join("ledger.jsonl")).unwrap();
    text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The result of `undertone eval` for a run's model or adapter on its training rows.
fn evaluate(bench: &Bench, out: &str) -> Value {
    let mut eval = Command::new(env!("CARGO_BIN_EXE_undertone"));
    eval.args(["eval", "--json", "--text", "sentence", "--max-tokens", "16", "--data"])
        .arg(bench.path("rows.tsv"));
    let (model, adapter) = (bench.path(out).join("model"), bench.path(out).join("adapter"));
    match model.exists() {
        true => eval.arg("--model").arg(model),
        false => eval.arg("--model").arg(bench.path("model")).arg("--adapter").arg(adapter),
    };
    let output = eval.output().unwrap();
    assert!(output.status.success(), "{out}: {}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    said.get("metrics").unwrap_or(&said).clone()
}

fn safetensors_of(bench: &Bench, file: &str) -> Vec<(String, Vec<u8>)> {
    let bytes = bench.bytes(file);
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    tensors.iter().map(|(name, view)| (name.to_owned(), view.data().to_vec())).collect()
}

/// The values of a tensor in a safetensors file.
fn tensor(bytes: &[u8], name: &str) -> Vec<f32> {
    let tensors = safetensors::SafeTensors::deserialize(bytes).unwrap();
    let numbers = tensors.tensor(name).unwrap().data().chunks_exact(4);
    numbers.map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}
