//! Rows per class and near-duplicate class names are shown before training and saved in no file.

use crate::bench::*;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn undertone(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.current_dir(bench.folder.path()).args(arguments).output().unwrap()
}

fn said(bench: &Bench, arguments: &[&str]) -> String {
    let output = undertone(bench, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    error
}

/// Rows of three classes, one of which is spelled in four ways.
fn bench() -> Bench {
    let bench =
        Bench::new("bert-classification", "tokenizer-wordpiece", "task = \"classification\"");
    let config = String::from_utf8(bench.bytes("model/config.json")).unwrap();
    let config = config.replace("ForSequenceClassification", "Model");
    fs::write(bench.path("model/config.json"), config).unwrap();
    let of = |label: &str, rows: usize| format!("the cat sat\t{label}\tone\n").repeat(rows);
    let rows = [
        of("Sports", 90),
        of("SPORTS", 5),
        of("Sprots", 1),
        of("Sports ", 3),
        of("World", 81),
        of("Business", 40),
    ]
    .concat();
    fs::write(bench.path("rows.tsv"), format!("sentence\tlabel\twho\n{rows}")).unwrap();
    bench
}

fn files_of(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_of(&path, files),
            false => files.push(path),
        }
    }
}

#[test]
fn near_duplicates_are_joined_by_the_line_that_is_printed() {
    let bench = bench();
    let change = "data.rename_labels={ \"SPORTS\" = \"Sports\", \"Sports \" = \"Sports\", \
                  \"Sprots\" = \"Sports\" }";
    let joined = ["train", "run.toml", "--set", change, "--set", "training.epochs=1"];
    let printed = said(&bench, &[&joined[..], &["--out", "run"]].concat());
    assert!(
        printed.contains("3 classes found in the training file: Business, Sports, World"),
        "{printed}"
    );
    let counts = "rows per class (private, shown only here): Business 40, Sports 99, World 81";
    assert!(printed.contains(counts), "{printed}");
    assert!(!printed.contains("look like one class"), "{printed}");
    // Evaluation of the run accepts the run's own spellings.
    let eval = ["eval", "--run", "run", "--data", "rows.tsv", "--json"];
    let eval: serde_json::Value = serde_json::from_slice(&undertone(&bench, &eval).stdout).unwrap();
    assert_eq!(eval["by_class"][1]["examples"], 99);
    // In no file, private or not.
    let mut files = Vec::new();
    files_of(&bench.path("run"), &mut files);
    for file in files {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        assert!(!text.contains("Sports 99") && !text.contains("rows per class"), "{file:?}");
    }
    bench.refused(
        "other",
        &["--set", "data.rename_labels={ a = \"Sport\" }"],
        "one of the classes",
    );
    let task = ["--set", "data.task=language-modeling", "--set", change];
    bench.refused("other", &task, "[data.rename_labels] is for data.task");
}

#[test]
fn near_duplicates_are_a_warning_with_a_remedy() {
    let bench = bench();
    // Given names, one of which occurs twice with different capitals.
    let rows = String::from_utf8(bench.bytes("rows.tsv")).unwrap();
    let rows = rows.replace("Sprots", "Sports").replace("Sports \t", "Sports\t");
    let rows = rows.replace("\tBusiness\t", "\tWorld\t");
    fs::write(bench.path("rows.tsv"), rows).unwrap();
    let dry = ["train", "run.toml", "--dry-run"];
    let printed = said(&bench, &dry);
    assert!(printed.contains("SPORTS 5, Sports 94, World 121"), "{printed}");
    let warning = "warning: \"SPORTS\" and \"Sports\" look like one class each";
    assert!(printed.contains(warning), "{printed}");
    assert!(
        printed.contains("--set 'data.rename_labels={ \"SPORTS\" = \"Sports\" }'"),
        "{printed}"
    );
    let labels = ["--set", "data.labels=[\"Sports\", \"SPORTS\", \"World\"]"];
    assert!(said(&bench, &[&dry[..], &labels].concat()).contains(warning));
    // Programs that start runs save the output, so counts are omitted.
    let kept = ["train", "run.toml", "--out", "kept", "--until-input-ends"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.current_dir(bench.folder.path()).args(kept).args(["--set", "training.epochs=1"]);
    let child = command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = child.spawn().unwrap();
    let input = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(input);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !printed.contains("rows per class"), "{printed}");
}

#[test]
fn one_class_is_a_warning() {
    let bench = Bench::classifier();
    let rows = String::from_utf8(bench.bytes("rows.tsv")).unwrap();
    fs::write(bench.path("rows.tsv"), rows.replace("\tbad\t", "\tgood\t")).unwrap();
    let printed = said(&bench, &["train", "run.toml", "--dry-run"]);
    assert!(printed.contains("warning: every row has the class \"good\""), "{printed}");
    assert!(printed.contains("bad 0, neutral 0, good 120"), "{printed}");
}
