//! Class names from private rows: which columns are refused, and that no published file contains
//! the names.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Class names that occur nowhere else.
const NAMES: [&str; 3] = ["quaint zebra", "silent yak", "wooden xylophone"];

/// A bench whose base model has no classes, and whose run file names none.
fn bench() -> Bench {
    let bench =
        Bench::new("bert-classification", "tokenizer-wordpiece", "task = \"classification\"");
    let config = String::from_utf8(bench.bytes("model/config.json")).unwrap();
    let config = config.replace("ForSequenceClassification", "Model");
    fs::write(bench.path("model/config.json"), config).unwrap();
    let rows: String =
        (0..120).map(|i| format!("the {}\t{}\tone\n", WORDS[i % 8], NAMES[i % 3])).collect();
    fs::write(bench.path("rows.tsv"), format!("sentence\tlabel\twho\n{rows}")).unwrap();
    bench
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => paths.extend(files(&path)),
            false => paths.push(path),
        }
    }
    paths
}

/// The files of a folder that contain a class name.
fn naming(folder: &Path) -> Vec<String> {
    let holds = |path: &PathBuf| {
        let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        NAMES.iter().any(|name| text.contains(name))
    };
    let relative =
        |path: PathBuf| path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
    let mut names: Vec<String> = files(folder).into_iter().filter(holds).map(relative).collect();
    names.sort();
    names
}

fn evaluated(bench: &Bench, model: &[&str]) -> std::process::Output {
    let mut eval = Command::new(env!("CARGO_BIN_EXE_undertone"));
    eval.args(["eval", "--json", "--text", "sentence", "--data"]).arg(bench.path("rows.tsv"));
    eval.current_dir(bench.folder.path()).args(model).output().unwrap()
}

const NAMED: [&str; 2] = ["--set", "data.labels=[\"a\", \"b\", \"c\"]"];

const SHORT: [&str; 2] = ["--set", "training.epochs=1"];

#[test]
fn texts_and_people_are_no_labels() {
    let bench = bench();
    let swapped = ["--set", "data.text=label", "--set", "data.label=sentence"];
    // 300 rows, each with a distinct text.
    let rows: String = (0..300)
        .map(|i| format!("patient {i} complains\t{}\tperson {}\n", ["a", "b"][i % 2], i / 3))
        .collect();
    fs::write(bench.path("rows.tsv"), format!("sentence\tlabel\twho\n{rows}")).unwrap();
    bench.refused("out", &swapped, "column \"sentence\" cannot be the label");
    let who = ["--set", "data.label=who"];
    bench.refused("out", &who, "more than 50 different values");
    let both = "column \"who\" is data.label and data.author";
    bench.refused("out", &[&who[..], &["--set", "data.author=who"]].concat(), both);
    let text = ["--set", "data.label=sentence"];
    bench.refused("out", &text, "column \"sentence\" is data.label and data.text");
    assert!(!bench.path("out/ledger.jsonl").exists(), "nothing was released");
    // Nor are they written to a run file.
    let mut init = Command::new(env!("CARGO_BIN_EXE_undertone"));
    init.current_dir(bench.folder.path());
    init.args(["init", "rows.tsv", "--text", "label", "--label", "sentence", "--read-labels"]);
    refused(&init.args(["--out", "new.toml"]).output().unwrap(), "cannot be the label");
    assert!(!bench.path("new.toml").exists());
    // An unknown label is shown shortened.
    let named = [NAMED[0], NAMED[1], "--set", "data.label=sentence"];
    let output = bench.command("out", &named).output().unwrap();
    refused(&output, "\"patient 0 complains\" is not one of a, b, c");
    let long = "a long and very private text about somebody";
    let rows = format!("sentence\tlabel\twho\nthe cat\t{long}\tone\n");
    fs::write(bench.path("rows.tsv"), rows).unwrap();
    let output = bench.command("out", &NAMED).output().unwrap();
    refused(&output, "a long and very priv…");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("somebody"));
}

#[test]
fn class_names_of_private_rows_are_not_published() {
    let bench = bench();
    let summary = bench.train("run", &SHORT);
    let assumed = summary["guarantee"]["assumptions"].to_string();
    assert!(assumed.contains("the same 3 classes with and without any one unit"), "{assumed}");
    assert_eq!(naming(&bench.path("run")), ["private/labels.json"]);
    // Inside the run folder, classes go by their names.
    let eval = evaluated(&bench, &["--model", "run/model"]);
    let eval: Value = serde_json::from_slice(&eval.stdout).unwrap();
    let labels: Vec<&str> =
        eval["by_class"].as_array().unwrap().iter().map(|c| c["label"].as_str().unwrap()).collect();
    assert_eq!(labels, NAMES);
    assert_eq!(eval["accuracy"], summary["metrics"]["validation"]["accuracy"]);
    let predict = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .current_dir(bench.folder.path())
        .args(["predict", "--model", "run/model", "--text", "sentence", "--data", "rows.tsv"])
        .args(["--out", "said.jsonl"])
        .output()
        .unwrap();
    assert!(predict.status.success(), "{}", String::from_utf8_lossy(&predict.stderr));
    let said = fs::read_to_string(bench.path("said.jsonl")).unwrap();
    assert!(NAMES.iter().any(|name| said.contains(&format!("\"label\":\"{name}\""))), "{said}");
    // A model moved out of the folder only has numbered classes.
    fs::create_dir(bench.path("published")).unwrap();
    fs::rename(bench.path("run/model"), bench.path("published/model")).unwrap();
    refused(
        &evaluated(&bench, &["--model", "published/model"]),
        "is not one of LABEL_0, LABEL_1, LABEL_2",
    );
}

#[test]
fn adapters_and_merged_models_number_the_classes() {
    let bench = bench();
    let lora = ["--set", "model.tuning={ lora = { rank = 2 } }"];
    bench.train("run", &[&SHORT[..], &lora].concat());
    assert_eq!(naming(&bench.path("run")), ["private/labels.json"]);
    let labels: Vec<String> =
        serde_json::from_slice(&bench.bytes("run/adapter/labels.json")).unwrap();
    assert_eq!(labels, ["LABEL_0", "LABEL_1", "LABEL_2"]);
    let adapted = ["--model", "model", "--adapter", "run/adapter"];
    assert!(evaluated(&bench, &adapted).status.success());
    let merged = bench.path("merged");
    let [model, adapter] = [bench.path("model"), bench.path("run/adapter")];
    let paths = [&model, &adapter, &merged].map(|path| path.to_str().unwrap());
    run(&["merge", "--model", paths[0], "--adapter", paths[1], "--out", paths[2]]);
    assert_eq!(naming(&merged), [""; 0]);
}

#[test]
fn names_are_published_with_consent_alone() {
    let bench = bench();
    let consent = ["--set", "data.publish_labels=true"];
    let summary = bench.train("run", &[&SHORT[..], &consent].concat());
    let assumed = summary["guarantee"]["assumptions"].to_string();
    assert!(assumed.contains(&NAMES.join(", ")) && assumed.contains("are public"), "{assumed}");
    let expected = ["ledger.jsonl", "model/README.md", "model/config.json", "summary.json"];
    assert_eq!(naming(&bench.path("run")), expected);
    // Consent without effect is refused.
    let named = format!("data.labels={NAMES:?}");
    bench.refused("out", &[&consent[..], &["--set", &named]].concat(), "without data.labels");
    let classifier = Bench::classifier();
    let own = [&consent[..], &["--unset", "data.labels"]].concat();
    classifier.refused("out", &own, "the base model has its own");
}

/// A second run that starts from the model of a first one reads its classes by name, and keeps them
/// private too.
#[test]
fn names_stay_private_in_the_next_run() {
    let bench = bench();
    bench.train("first", &SHORT);
    let model = format!("model.path={:?}", bench.path("first/model").to_str().unwrap());
    let summary = bench.train("second", &[&SHORT[..], &["--set", &model]].concat());
    assert_eq!(naming(&bench.path("second")), ["private/labels.json"]);
    assert_eq!(summary["private"], true);
}
