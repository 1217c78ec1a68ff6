//! Masked language models through the command line: trained, resumed, evaluated and attacked.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

const TASK: &str = "task = \"masked-language-modeling\"";

fn masked(architecture: &str) -> Bench {
    let bench = Bench::new(architecture, "tokenizer-wordpiece", TASK);
    // The RoBERTa fixture has fewer tokens than the tokenizer.
    let rows = fs::read_to_string(bench.path("rows.tsv")).unwrap().replace("today", "cat");
    fs::write(bench.path("rows.tsv"), rows).unwrap();
    bench
}

fn undertone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_slice(&run(arguments)).unwrap()
}

fn loss(summary: &Value) -> f64 {
    summary["metrics"]["validation"]["loss"].as_f64().unwrap()
}

#[test]
fn masked_models_learn_by_every_method_and_keep_to_their_budget() {
    let lora = "model.tuning={ lora = { rank = 2 } }";
    for (architecture, changes) in [
        ("bert-masked-lm", &["privacy.method=dp-sgd"][..]),
        ("roberta-masked-lm", &["privacy.method=dp-sgd", "model.tuning=bitfit"]),
        ("roberta-masked-lm", &["privacy.method=adaclip", lora]),
        ("bert-masked-lm", &["privacy.method=anadp", lora]),
        ("bert-masked-lm", &["privacy.method=anadp", "privacy.mode=paper"]),
        ("bert-masked-lm", &["privacy.method=rap-ft", lora]),
        ("bert-masked-lm", &["privacy.method=dp-sgd", "data.author=who"]),
        (
            "bert-masked-lm",
            &[
                "privacy.method=dp-sgd",
                "data.max_tokens=6",
                "data.long_texts={ split = { at_most = 2 } }",
            ],
        ),
    ] {
        let bench = masked(architecture);
        let set: Vec<&str> = changes.iter().flat_map(|change| ["--set", *change]).collect();
        let summary = bench.train("run", &set);
        let epsilon = summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
        let paper = changes.contains(&"privacy.mode=paper");
        assert!(epsilon > 0.0 && (epsilon <= 8.0 || paper), "{changes:?}: {epsilon}");
        assert!(loss(&summary).is_finite(), "{changes:?}");
    }
}

/// transformers loads the saved folder as a masked language model, and its evaluation equals that
/// of the run itself.
#[test]
fn what_is_learnt_is_saved_and_evaluated_on_the_same_masks() {
    let bench = masked("bert-masked-lm");
    let plain = ["--set", "privacy.method=none", "--unset", "privacy.epsilon"];
    let plain = [&plain[..], &["--unset", "privacy.delta", "--seed", "3"]].concat();
    let short = bench.train("short", &[&plain[..], &["--set", "training.epochs=1"]].concat());
    let long = bench.train("long", &[&plain[..], &["--set", "training.epochs=30"]].concat());
    assert!(loss(&long) < 0.8 * loss(&short), "{} {}", loss(&long), loss(&short));
    let config: Value = serde_json::from_slice(&bench.bytes("long/model/config.json")).unwrap();
    assert_eq!(config["architectures"][0], "BertForMaskedLM");
    let saved = bench.bytes("long/model/model.safetensors");
    let names = safetensors::SafeTensors::deserialize(&saved).unwrap();
    assert!(names.tensor("cls.predictions.bias").is_ok());
    assert!(names.tensor("cls.predictions.decoder.weight").is_err(), "the decoder is tied");
    let card = String::from_utf8(bench.bytes("long/model/README.md")).unwrap();
    assert!(card.contains("fill-mask") && card.contains("AutoModelForMaskedLM"), "{card}");

    let (model, rows) = (bench.path("long/model"), bench.path("rows.tsv"));
    let data = ["--model", model.to_str().unwrap(), "--data", rows.to_str().unwrap()];
    let data = [&data[..], &["--text", "sentence", "--max-tokens", "16"]].concat();
    let answer = json(&[&["eval", "--json"][..], &data].concat());
    assert!((answer["loss"].as_f64().unwrap() - loss(&long)).abs() < 1e-5, "{answer}");
    let again = json(&[&["eval", "--json", "--batch", "7"][..], &data].concat());
    assert_eq!(answer["tokens"], again["tokens"]);
    let difference = answer["loss"].as_f64().unwrap() - again["loss"].as_f64().unwrap();
    assert!(difference.abs() < 1e-5, "{answer} {again}");
    let said = bench.path("said.jsonl");
    let predict = [&["predict", "--out", said.to_str().unwrap()][..], &data].concat();
    run(&predict);
    let said = fs::read_to_string(&said).unwrap();
    assert_eq!(said.lines().count(), 120);
    refused(&undertone(&[&predict[..], &["--logits"]].concat()), "--logits needs");
    let prompt = ["generate", "--model", model.to_str().unwrap(), "--prompt", "the"];
    assert_eq!(undertone(&prompt).status.code(), Some(2));
}

/// Masks are drawn by key, step and example: an interrupted and resumed run equals an uninterrupted
/// one.
#[test]
fn a_killed_run_goes_on_with_the_same_masks() {
    let bench = masked("bert-masked-lm");
    let settings = ["--set", "training.epochs=4", "--set", "training.batch=4", "--seed", "5"];
    let settings = [&settings[..], &["--set", "compute.checkpoint_every=7"]].concat();
    bench.train("whole", &settings);
    if bench.kill_after("broken", &settings, 30) {
        bench.resume("broken");
    }
    bench.assert_same_runs("broken", "whole", "model/model.safetensors");
}

#[test]
fn what_cannot_be_masked_is_refused() {
    let bench = Bench::classifier();
    let task = ["--set", "data.task=masked-language-modeling", "--unset", "data.labels"];
    // The classifier has no masked-language-modeling head; with full fine-tuning, it gets one.
    let lora = ["--set", "model.tuning={ lora = { rank = 2 } }"];
    bench.refused("run", &[&task[..], &lora].concat(), "has no masked-language-modeling head");
    bench.train("full", &task);
    bench.refused(
        "run",
        &[&task[..], &["--set", "privacy.method=ew-ft"]].concat(),
        "classification",
    );
    let initial = "privacy.rap_ft.initial=naive";
    let rap_ft = ["--set", "privacy.method=rap-ft", "--set", initial];
    bench.refused("run", &[&task[..], &rap_ft].concat(), "language-modeling, completion and chat");
    let causal = Bench::new("gpt2-causal-lm", "tokenizer-bpe", TASK);
    causal.refused("run", &[], "no task head");
}

/// A tokenizer that splits numbers into digits, and mails with one number each.
fn mails() -> Bench {
    let bench = masked("bert-masked-lm");
    let file = bench.path("model/tokenizer.json");
    let mut text = fs::read_to_string(&file).unwrap();
    for (i, word) in ["film", "it", "to", "in", "of", "that", "book", "read", "house", "ending"]
        .iter()
        .enumerate()
    {
        text = text.replace(&format!("\"{word}\""), &format!("\"##{i}\""));
    }
    fs::write(&file, text).unwrap();
    let names = ["Anna Bell", "John Cole", "Mary Dunn", "Peter Ford"];
    let mails: String = (0..24)
        .map(|i| {
            format!("{} was {} , 713-853-{:04}\tgood\tx\n", names[i % 4], i, (i * 7919) % 10_000)
        })
        .collect();
    fs::write(bench.path("rows.tsv"), format!("sentence\tlabel\twho\n{mails}")).unwrap();
    bench
}

/// A model that memorizes its mails reveals numbers and names; the pretrained model, which never
/// saw them, does not.
#[test]
fn secrets_of_the_mails_are_exposed_by_a_model_that_learnt_them_by_heart() {
    let bench = mails();
    let plain = ["--set", "privacy.method=none", "--unset", "privacy.epsilon"];
    let plain = [&plain[..], &["--unset", "privacy.delta", "--seed", "3"]].concat();
    let long = ["--set", "training.epochs=400", "--set", "training.learning_rate=4e-3"];
    bench.train("run", &[&plain[..], &long, &["--set", "data.max_tokens=32"]].concat());
    let folder = bench.path("run");
    let run_folder = folder.to_str().unwrap();
    let exposure = ["audit", "exposure", "--json", "--run", run_folder, "--candidates", "500"];
    let command = [&exposure[..], &["--found", "--kind", "phone,person"]].concat();
    let rows = json(&command);
    let estimate = |row: &Value, of: &str, what: &str| row[of][what]["estimate"].as_f64().unwrap();
    assert_eq!(
        (rows[0]["kind"].as_str(), rows[1]["kind"].as_str()),
        (Some("phone"), Some("person"))
    );
    let phones = &rows[0];
    assert_eq!(phones["trained"]["exposures"].as_array().unwrap().len(), 24);
    let before = estimate(phones, "pretrained", "exposure");
    let after = estimate(phones, "trained", "exposure");
    assert!(before < 5.0 && after > before + 5.0, "{before} {after}");
    for row in rows.as_array().unwrap() {
        let before = estimate(row, "pretrained", "mean_reciprocal_rank");
        let after = estimate(row, "trained", "mean_reciprocal_rank");
        assert!(before < 0.2 && after > 0.4, "{}: {before} {after}", row["kind"]);
    }
    // Hiding one token at a time, with the others visible, reveals at least as much here.
    let in_turn = json(&[&command[..], &["--hidden", "in-turn", "--secrets", "4"]].concat());
    assert!(estimate(&in_turn[0], "trained", "exposure") > before + 5.0, "{in_turn}");
    // Planted secrets for masked models: the last four digits of some mails.
    let file = bench.path("canaries.jsonl");
    let rows = fs::read_to_string(bench.path("rows.tsv")).unwrap();
    let canary = |row: &str| {
        let (before, digits) = row.split('\t').next().unwrap().rsplit_once('-').unwrap();
        format!("{{\"text\": \"{before}-####\", \"secret\": \"{digits}\"}}\n")
    };
    fs::write(&file, rows.lines().skip(1).take(8).map(canary).collect::<String>()).unwrap();
    let asked = ["--canaries", file.to_str().unwrap(), "--hidden", "in-turn"];
    let planted = json(&[&exposure[..], &asked].concat());
    let mean = |of: &str| {
        let bits = planted.as_array().unwrap().iter().map(|row| row[of]["bits"].as_f64().unwrap());
        bits.sum::<f64>() / 8.0
    };
    assert!(mean("trained") > mean("pretrained") + 1.0, "{planted}");
    let kept: Value = serde_json::from_slice(&bench.bytes("run/audit.json")).unwrap();
    assert_eq!((&kept["exposure"], &kept["found_exposure"]), (&planted, &in_turn));
    let report = bench.path("report.md");
    run(&["report", run_folder, "--out", report.to_str().unwrap()]);
    assert!(fs::read_to_string(report).unwrap().contains("Exposure of secrets found"));

    let both = [&command[..], &["--canaries", file.to_str().unwrap()]].concat();
    assert_eq!(undertone(&both).status.code(), Some(2));
    let kinds =
        [&exposure[..], &["--canaries", file.to_str().unwrap(), "--kind", "phone"]].concat();
    refused(&undertone(&kinds), "apply to --found");
    refused(&undertone(&["audit", "extraction", "--run", run_folder]), "a causal language model");
    let members = json(&["audit", "membership", "--json", "--run", run_folder]);
    assert!(members[0]["auc"]["estimate"].is_number());
    let all = undertone(&["audit", "all", "--run", run_folder]);
    assert!(all.status.success(), "{}", String::from_utf8_lossy(&all.stderr));
}

#[test]
fn one_run_audits_a_masked_model() {
    let bench = masked("bert-masked-lm");
    let (file, out) = (bench.path("run.toml"), bench.path("one"));
    for (score, folder) in [("loss", &out), ("update", &bench.path("other"))] {
        let answer = json(&[
            "audit",
            "one-run",
            "--json",
            "--canaries",
            "40",
            "--score",
            score,
            "--run",
            file.to_str().unwrap(),
            "--out",
            folder.to_str().unwrap(),
        ]);
        assert!(answer["epsilon_lower"].as_f64().unwrap() <= 8.0, "{answer}");
    }
}
