//! Real-world model folders: sharded, in half precision, damaged. Covers `undertone model show` and
//! the output of `merge`.

use crate::bench::{Sentences, fixture, refused};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn undertone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = undertone(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A copy of a fixture's model folder.
fn copy(to: &Path, name: &str) -> PathBuf {
    let folder = to.join(name);
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(fixture("models").join(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Changes a key of a JSON file.
fn set(file: &Path, key: &str, value: Value) {
    let mut keys: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    keys[key] = value;
    fs::write(file, keys.to_string()).unwrap();
}

fn remove(file: &Path, key: &str) {
    let mut keys: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    keys.as_object_mut().unwrap().remove(key);
    fs::write(file, keys.to_string()).unwrap();
}

#[test]
fn a_folder_is_shown_without_reading_its_weights() {
    let folder = tempfile::tempdir().unwrap();
    let model = copy(folder.path(), "llama-causal-lm");
    let answer: Value =
        serde_json::from_str(&said(&["model", "show", text(&model), "--json"])).unwrap();
    assert_eq!(answer["architecture"], "llama");
    assert_eq!(answer["class"], "LlamaForCausalLM");
    assert_eq!((&answer["layers"], &answer["hidden"]), (&2.into(), &24.into()));
    assert_eq!(answer["tied_embeddings"], true);
    // By hand: the embedding table; for each layer q and o (24×24), k and v (12×24), three
    // feed-forward matrices (40×24) and two norms; the last norm.
    let all = 48 * 24 + 2 * (2 * 24 * 24 + 2 * 12 * 24 + 3 * 40 * 24 + 2 * 24) + 24;
    assert_eq!(answer["parameters"], all);
    let tuning = |name: &str, key: &str| {
        let rows = answer["tuning"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("{name} in {answer}"))[key].as_u64().unwrap()
    };
    assert_eq!(tuning("full", "trainable_parameters"), all);
    assert_eq!(tuning("full", "memory_bytes"), 16 * all);
    // LoRA of rank 8 on q (24 to 24) and v (24 to 12) in two layers.
    let lora = 2 * 8 * (24 + 24 + 24 + 12);
    assert_eq!(tuning("lora", "trainable_parameters"), lora);
    assert_eq!(tuning("lora", "memory_bytes"), 4 * all + 16 * lora);
    let vectors = 2 * 2 * 24 + 24;
    assert_eq!(tuning("lora", "memory_bytes_bf16"), 2 * (all - vectors) + 4 * vectors + 16 * lora);
    let shown = said(&["model", "show", text(&model)]);
    for part in ["LlamaForCausalLM", "tuning", "lora", "F32", "32 tokens"] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    // Values are not read, so a NaN among them does not matter here.
    let weights = model.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&weights, bytes).unwrap();
    said(&["model", "show", text(&model)]);
}

/// Every damaged folder gives one sentence and exit code 2, before anything large is allocated.
#[test]
fn damaged_folders_are_refused() {
    let sentences = Sentences::start();
    let folder = tempfile::tempdir().unwrap();
    let shown = |model: &Path, about: &str| {
        refused(&undertone(&["model", "show", text(model)]), about);
    };
    let shards = copy(folder.path(), "bert-sharded");
    let index = shards.join("model.safetensors.index.json");
    let second = shards.join("model-00002-of-00003.safetensors");
    let whole = fs::read(&second).unwrap();
    fs::write(&second, &whole[..whole.len() - 5]).unwrap();
    shown(&shards, "cut off");
    fs::remove_file(&second).unwrap();
    shown(&shards, "lists it");
    fs::copy(shards.join("model-00001-of-00003.safetensors"), &second).unwrap();
    shown(&shards, "and so has");
    fs::write(&second, &whole).unwrap();
    let listed = fs::read_to_string(&index).unwrap();
    fs::write(&index, listed.replace("classifier.bias", "classifier.extra")).unwrap();
    shown(&shards, "classifier.extra");
    fs::write(&index, listed.replace("model-00002-of-00003", "../elsewhere")).unwrap();
    shown(&shards, "outside of the folder");
    fs::write(&index, "{}").unwrap();
    shown(&shards, "weight_map");
    fs::write(&index, &listed).unwrap();
    said(&["model", "show", text(&shards)]);

    let config = shards.join("config.json");
    let before = fs::read(&config).unwrap();
    for (key, value, about) in [
        (
            "num_hidden_layers",
            json!(1),
            "says that the model has 1 layers, but the weights have more",
        ),
        ("num_hidden_layers", json!(3), "no tensor bert.encoder.layer.2"),
        ("vocab_size", json!(1_000_000_000), "vocab_size"),
        ("vocab_size", json!(16_000_000), "config.json requires [16000000, 16]"),
        ("hidden_size", json!(4_000_000), "config.json requires"),
        ("intermediate_size", json!(33), "config.json requires [33, 16]"),
        ("model_type", json!("mamba"), "supported are bert"),
    ] {
        set(&config, key, value);
        shown(&shards, about);
        fs::write(&config, &before).unwrap();
    }
    // A layer with weights that the configuration does not describe is a different layer.
    let llama = copy(folder.path(), "qwen3-causal-lm");
    for key in ["layer_types", "max_window_layers", "sliding_window", "use_sliding_window"] {
        remove(&llama.join("config.json"), key);
    }
    set(&llama.join("config.json"), "model_type", json!("llama"));
    set(&llama.join("config.json"), "architectures", json!(["LlamaForCausalLM"]));
    shown(&llama, "k_norm.weight");
    sentences.assert("model_folders");
}

/// The data types of all tensors in a folder's files.
fn types(folder: &Path) -> Vec<(String, safetensors::Dtype)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            let bytes = fs::read(path).unwrap();
            let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            all.extend(file.iter().map(|(name, tensor)| (name.to_owned(), tensor.dtype())));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Merged models keep the base model's data types; large ones are sharded, with an index that
/// loads.
#[test]
fn merging_keeps_types_and_writes_shards() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows.tsv");
    fs::write(&rows, "sentence\tlabel\nthe cat sat\tbad\na dog ran\tgood\n").unwrap();
    let adapter = fixture("models/lora-bert");
    for (name, expected) in [
        ("bert-bf16", safetensors::Dtype::BF16),
        ("bert-f16", safetensors::Dtype::F16),
        ("bert-sharded", safetensors::Dtype::F32),
    ] {
        let model = copy(folder.path(), name);
        let tokenizer = fixture("tokenizer-wordpiece").join("tokenizer.json");
        fs::copy(tokenizer, model.join("tokenizer.json")).unwrap();
        let merged = folder.path().join(format!("merged-{name}"));
        said(&[
            "merge",
            "--model",
            text(&model),
            "--adapter",
            text(&adapter),
            "--out",
            text(&merged),
        ]);
        assert!(merged.join("model.safetensors").is_file(), "{name}: small enough for one file");
        let dtypes = types(&merged);
        assert!(dtypes.iter().all(|(_, dtype)| *dtype == expected), "{name}: {dtypes:?}");
        let dtype = |folder: &Path| {
            let text = fs::read_to_string(folder.join("config.json")).unwrap();
            serde_json::from_str::<Value>(&text).unwrap()["dtype"].clone()
        };
        assert_eq!(dtype(&merged), dtype(&model), "{name}");
        let loss = |arguments: &[&str]| -> f64 {
            let eval = [&["eval", "--data", text(&rows), "--json"], arguments].concat();
            serde_json::from_str::<Value>(&said(&eval)).unwrap()["loss"].as_f64().unwrap()
        };
        let beside = loss(&["--model", text(&model), "--adapter", text(&adapter)]);
        let inside = loss(&["--model", text(&merged)]);
        assert!((beside - inside).abs() < 2e-2 * beside, "{name}: {beside} and {inside}");
    }
}
