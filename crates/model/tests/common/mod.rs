//! Reads the fixtures written by `make_models.py`.
#![allow(dead_code)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use undertone_data::{Batch, Example, Target};
use undertone_model::folder::Weights;
use undertone_model::{Model, TaskHead};
use undertone_tensor::{CpuLevel, Device, Matrix};

pub fn fixture(name: &str) -> PathBuf {
    // Looked up at run time, so that a test built on one machine can run on another.
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    Path::new(&root).join("../undertone/tests/fixtures/models").join(name)
}

/// The devices to test: the CPU and, with `UNDERTONE_TEST_DEVICE=cuda`, a GPU.
pub fn devices() -> Vec<Device> {
    let mut devices = vec![Device::Cpu];
    match std::env::var("UNDERTONE_TEST_DEVICE").as_deref() {
        Ok("cuda") => devices.push(Device::cuda(0).unwrap_or_else(|error| panic!("{error}"))),
        Ok("" | "cpu") | Err(_) => {}
        Ok(other) => panic!("UNDERTONE_TEST_DEVICE is cuda or cpu, not {other}"),
    }
    devices
}

/// Calls a function with each device, and with the CPU at every instruction-set level it supports.
pub fn on_each_device(body: impl Fn(Device) + Sync) {
    for device in devices() {
        match device {
            Device::Cpu => CpuLevel::each(|_| body(Device::Cpu)),
            device => body(device),
        }
    }
}

pub struct Expected {
    pub weights: Weights,
}

impl Expected {
    pub fn of(name: &str) -> Self {
        Self { weights: Weights::open_file(&fixture(name).join("expected.safetensors")).unwrap() }
    }

    pub fn get(&self, key: &str) -> Vec<f32> {
        self.weights.read(key).unwrap_or_else(|e| panic!("{key}: {e}"))
    }

    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = String> + 'a {
        let mut names: Vec<&str> =
            self.weights.names().filter_map(|name| name.strip_prefix(prefix)).collect();
        names.sort();
        names.into_iter().map(str::to_owned)
    }
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect()
}

/// The fixture's batch, with targets for the model's head.
pub fn batch(name: &str, model: &Model) -> Batch {
    let text = std::fs::read_to_string(fixture(name).join("inputs.json")).unwrap();
    let inputs: Value = serde_json::from_str(&text).unwrap();
    let sequences = inputs["sequences"].as_array().unwrap();
    let examples: Vec<Example> = sequences
        .iter()
        .enumerate()
        .map(|(i, tokens)| {
            let tokens: Vec<u32> = numbers(tokens).into_iter().map(|t| t as u32).collect();
            let segments = match &inputs["segments"] {
                Value::Array(all) => numbers(&all[i]).into_iter().map(|s| s as u32).collect(),
                _ => Vec::new(),
            };
            let target = match model.network.head.task_head {
                TaskHead::SequenceClassification => {
                    Target::Class(inputs["labels"][i].as_u64().unwrap() as u32)
                }
                TaskHead::CausalLanguageModel => Target::Next { from: 1 },
                _ => {
                    let labels = numbers(&inputs["labels"][i]);
                    let marked = labels.iter().enumerate().filter(|(_, label)| **label >= 0);
                    let (positions, labels) = marked.map(|(p, l)| (p as u32, *l as u32)).unzip();
                    Target::Masked { positions, labels }
                }
            };
            Example { tokens, segments, target, unit: i as u32 }
        })
        .collect();
    Batch::pack(&examples)
}

/// The largest difference, relative to the largest expected magnitude. Values that are zero in
/// theory, such as the gradient of a key's bias (softmax is invariant to it), contain only rounding
/// errors on both sides; they are compared at a scale of 1e-4.
pub fn difference(actual: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(actual.len(), expected.len(), "same length");
    let scale = expected.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
    let largest = actual.iter().zip(expected).fold(0.0_f32, |m, (a, b)| {
        assert!(a.is_finite(), "a number that is not finite");
        m.max((a - b).abs())
    });
    largest / scale.max(1e-4)
}

pub fn assert_close(what: &str, actual: &Matrix, expected: &[f32], tolerance: f32) {
    let difference = difference(&actual.to_vec().unwrap(), expected);
    assert!(difference <= tolerance, "{what}: NOT OK, differs by {difference:e}");
    println!("{what}: OK, {difference:e}");
}
