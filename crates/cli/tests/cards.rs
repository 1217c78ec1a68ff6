//! Model cards: their commands work when pasted, and a merged model keeps its card. tests/peers
//! checks that their Python runs.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::Command;

const LORA: [&str; 4] =
    ["--set", "model.tuning={ lora = { rank = 2 } }", "--set", "training.epochs=1"];

fn merge(bench: &Bench, adapter: &str, out: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.arg("merge").arg("--model").arg(bench.path("model"));
    command.arg("--adapter").arg(bench.path(adapter)).arg("--out").arg(bench.path(out));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

fn read(bench: &Bench, name: &str) -> String {
    fs::read_to_string(bench.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn an_adapter_names_all_that_it_is_loaded_with() {
    let bench = Bench::classifier();
    let summary = bench.train("run", &LORA);
    let card = read(&bench, "run/adapter/README.md");
    for part in [
        "model = AutoPeftModelForSequenceClassification.from_pretrained(",
        "labels = [\"bad\",\"neutral\",\"good\"]",
        "id2label=dict(enumerate(labels))",
        "max_length=16",
        "tokenizer = AutoTokenizer.from_pretrained(\".\")",
        "--adapter . --data new.jsonl",
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
    // PEFT finds the base model from any folder, and the tokenizer beside the adapter.
    let config: Value =
        serde_json::from_str(&read(&bench, "run/adapter/adapter_config.json")).unwrap();
    let base = bench.path("model").canonicalize().unwrap();
    assert_eq!(config["base_model_name_or_path"], base.to_str().unwrap());
    assert!(config["revision"].is_null());
    assert!(card.contains(base.to_str().unwrap()), "{card}");
    assert_eq!(bench.bytes("run/adapter/tokenizer.json"), bench.bytes("model/tokenizer.json"));
    let class = read(&bench, "run/adapter/tokenizer_config.json");
    assert!(class.contains("PreTrainedTokenizerFast"), "{class}");
    // The merged model keeps the card, the guarantee, the label names and the maximum length.
    merge(&bench, "run/adapter", "merged");
    let merged = read(&bench, "merged/README.md");
    let before = |card: &str| card.split("## What is guaranteed").nth(1).unwrap().to_owned();
    let guarantee = |card: &str| before(card).split("## Training").next().unwrap().to_owned();
    assert_eq!(guarantee(&merged), guarantee(&card));
    assert!(merged.contains(summary["ledger_hash"].as_str().unwrap()));
    assert!(merged.contains("library_name: transformers\n"), "{merged}");
    assert!(merged.contains("= AutoModelForSequenceClassification.from_pretrained(\".\")"));
    assert!(merged.contains("merged into its base model") && merged.contains("max_length=16"));
    assert!(!merged.contains("peft") && !merged.contains("--adapter"), "{merged}");
    assert!(merged.contains("## What is not guaranteed"), "{merged}");
    let config: Value = serde_json::from_str(&read(&bench, "merged/config.json")).unwrap();
    assert_eq!(config["id2label"]["1"], "neutral");
    assert!(read(&bench, "merged/undertone.json").contains("16"));
}

/// Without a card there is nothing to keep, and a foreign card is not mistaken for ours.
#[test]
fn a_card_that_is_not_ours_stays_behind() {
    let bench = Bench::classifier();
    bench.train("run", &LORA);
    fs::write(bench.path("run/adapter/README.md"), "# An adapter\n").unwrap();
    let said = merge(&bench, "run/adapter", "stranger");
    assert!(said.contains("no model card of Undertone"), "{said}");
    assert!(!bench.path("stranger/README.md").exists());
    fs::remove_file(bench.path("run/adapter/README.md")).unwrap();
    merge(&bench, "run/adapter", "none");
    assert!(!bench.path("none/README.md").exists());
}

/// File names are shown, folders are not.
#[test]
fn a_public_report_hides_paths() {
    let bench = Bench::classifier();
    let public = format!("data.validation={:?}", bench.public().to_str().unwrap());
    let public = ["--set", &public, "--set", "data.validation_is_public=true"];
    fs::create_dir(bench.path("other")).unwrap();
    for out in ["run", "other/run"] {
        bench.train(out, &[&LORA[..], &public].concat());
    }
    let (finished, other) = (bench.path("run"), bench.path("other/run"));
    for (name, runs) in [("one", vec![&finished]), ("two", vec![&finished, &other])] {
        for ending in ["html", "md"] {
            let out = bench.path(&format!("{name}.{ending}"));
            let runs = runs.iter().map(|run| run.to_str().unwrap());
            let arguments = ["report", "--public", "--out", out.to_str().unwrap()];
            let arguments: Vec<&str> = arguments.into_iter().chain(runs).collect();
            run(&arguments);
            let report = fs::read_to_string(&out).unwrap();
            let folder = bench.folder.path().file_name().unwrap().to_str().unwrap();
            assert!(!report.contains(folder), "{ending}: {report}");
            assert!(report.contains("rows.tsv") && report.contains("public.tsv"), "{ending}");
            assert!(name == "one" || report.contains("run (2)"), "{ending}: {report}");
        }
    }
}
