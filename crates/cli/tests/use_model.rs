//! `eval`, `predict`, `generate` and `merge` as called by people and scripts, on the small models
//! of the library's tests.

use crate::bench::{Sentences, fixture, note_sentence};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A model folder with a tokenizer in it.
fn model(to: &Path, name: &str, tokenizer: &str) -> String {
    let folder = to.join(name);
    fs::create_dir_all(&folder).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture("models").join(name).join(file), folder.join(file)).unwrap();
    }
    fs::copy(fixture(tokenizer).join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    folder.to_string_lossy().into_owned()
}

fn undertone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = undertone(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Checks for a single sentence and exit code 2.
fn refused(arguments: &[&str], about: &str) {
    let output = undertone(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    note_sentence(&error);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(error.contains(about), "{arguments:?} said {error}");
    assert!(!error.contains("panicked"), "{error}");
}

const ROWS: &str = "sentence\tlabel\nthe cat sat\tbad\na dog \"ran\"\tneutral\nthe sun is warm \
 today\tgood\ncat\t0\n";

fn data(to: &Path) -> String {
    let file = to.join("rows.tsv");
    fs::write(&file, ROWS).unwrap();
    file.to_string_lossy().into_owned()
}

#[test]
fn a_classifier_is_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) =
        (model(folder.path(), "bert-classification", "tokenizer-wordpiece"), data(folder.path()));
    let answer: Value =
        serde_json::from_str(&said(&["eval", "--model", &model, "--data", &data, "--json"]))
            .unwrap();
    assert_eq!(answer["examples"], 4);
    let accuracy = answer["accuracy"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&accuracy) && answer["loss"].as_f64().unwrap() > 0.0);
    assert!(answer["f1"].is_number() && answer["confusion"].is_array());
    // The figures of each class follow from the confusion matrix.
    let classes = answer["by_class"].as_array().unwrap();
    let labels: Vec<&str> = classes.iter().map(|class| class["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["bad", "neutral", "good"]);
    let recalled: f64 = classes
        .iter()
        .map(|class| class["recall"].as_f64().unwrap() * class["examples"].as_f64().unwrap())
        .sum();
    assert!((recalled / 4.0 - accuracy).abs() < 1e-9, "{answer}");
    assert!((0.0..=1.0).contains(&answer["auc"].as_f64().unwrap()), "{answer}");
    let shown = said(&["eval", "--model", &model, "--data", &data]);
    for text in ["accuracy", "AUC", "precision", "recall", "label \\ prediction", "neutral"] {
        assert!(shown.contains(text), "{text} is missing in\n{shown}");
    }
    // With other instruction sets, and therefore other kernels, the results are the same.
    let listed: Value = serde_json::from_str(&said(&["device", "--json"])).unwrap();
    for level in listed["processor_levels"].as_array().unwrap() {
        let level = level.as_str().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_undertone"))
            .args(["eval", "--model", &model, "--data", &data, "--json"])
            .env("UNDERTONE_CPU", level)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let other: Value = serde_json::from_slice(&output.stdout).unwrap();
        let loss = |answer: &Value| answer["loss"].as_f64().unwrap();
        assert!((loss(&other) - loss(&answer)).abs() < 1e-5, "{level}");
    }
    let gpu = ["eval", "--model", &model, "--data", &data, "--device", "cuda:999"];
    refused(&gpu, "GPU");
    assert_eq!(
        listed["processor"],
        *listed["processor_levels"].as_array().unwrap().last().unwrap()
    );
    assert!(listed["processor_found"].is_string() && listed["gpus"].is_array());
    if listed["gpu_usable"] == false {
        assert!(!listed["missing"].as_array().unwrap().is_empty());
    }
}

#[test]
fn predictions_are_written_in_every_layout() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) =
        (model(folder.path(), "bert-classification", "tokenizer-wordpiece"), data(folder.path()));
    let out = folder.path().join("said.jsonl");
    said(&[
        "predict",
        "--model",
        &model,
        "--data",
        &data,
        "--out",
        out.to_str().unwrap(),
        "--logits",
    ]);
    let rows: Vec<Value> = fs::read_to_string(&out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 4);
    for row in &rows {
        let parts = row["probabilities"].as_object().unwrap();
        let total: f64 = parts.values().map(|p| p.as_f64().unwrap()).sum();
        assert!((total - 1.0).abs() < 1e-6 && parts.len() == 3);
        let best = parts
            .iter()
            .max_by(|a, b| a.1.as_f64().unwrap().total_cmp(&b.1.as_f64().unwrap()))
            .unwrap()
            .0;
        assert_eq!(row["label"].as_str(), Some(best.as_str()));
        assert_eq!(row["logits"].as_array().unwrap().len(), 3);
    }
    for name in ["said.csv", "said.tsv"] {
        let out = folder.path().join(name);
        said(&["predict", "--model", &model, "--data", &data, "--out", out.to_str().unwrap()]);
        let text = fs::read_to_string(&out).unwrap();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.starts_with("label"), "{text}");
    }
}

/// The data's label beside the predicted one, and columns of any format.
#[test]
fn columns_are_carried_over() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), "bert-classification", "tokenizer-wordpiece");
    let file = folder.path().join("rows.json");
    let rows = r#"[{"id": 7, "sentence": "the cat\tsat", "label": "bad", "more": {"a": [1]}},
                   {"id": 8, "sentence": "a dog, today", "label": "good", "more": {"a": 2}}]"#;
    fs::write(&file, rows).unwrap();
    let data = file.to_str().unwrap().to_owned();
    let out = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let keep = ["--keep", "id", "--keep", "label", "--keep", "more.a", "--keep", "sentence"];
    let predict = |out: &str| {
        let to = ["predict", "--model", &model, "--data", &data, "--out", out];
        said(&[&to[..], &keep].concat());
        fs::read_to_string(out).unwrap()
    };
    // Twice: a file of predictions with kept columns may be overwritten.
    predict(&out("said.jsonl"));
    let rows: Vec<Value> = predict(&out("said.jsonl"))
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[0]["id"], &rows[0]["input.label"]), (&"7".into(), &"bad".into()));
    assert_eq!((&rows[0]["more.a"], &rows[1]["more.a"]), (&"[1]".into(), &"2".into()));
    assert_eq!(rows[1]["sentence"], "a dog, today");
    assert!(rows[0]["probabilities"].is_object() && rows[0]["label"].is_string());
    let csv = predict(&out("said.csv"));
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].ends_with(",id,input.label,more.a,sentence"), "{csv}");
    assert!(lines[2].ends_with(",8,good,2,\"a dog, today\""), "{csv}");
    let tsv = predict(&out("said.tsv"));
    assert!(tsv.lines().nth(1).unwrap().ends_with("\t7\tbad\t[1]\tthe cat sat"), "{tsv}");
    let again = |more: &[&str], about: &str| {
        let to = out("other.jsonl");
        let base = ["predict", "--model", &model, "--data", &data, "--out", &to];
        refused(&[&base[..], more].concat(), about);
    };
    again(&["--keep", "nothing"], "nothing");
    again(&["--keep", "id", "--keep", "id"], "twice");
    again(&["--keep", "id", "--private"], "--private");
}

/// Completions that equal their references have ROUGE-L 1 and no brevity penalty; others do not.
/// (The small model generates fewer than four words, so BLEU is 0.)
#[test]
fn completions_are_generated_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), "gpt2-causal-lm", "tokenizer-bpe");
    let new = ["--max-new-tokens", "8"];
    let prompts = ["the cat", "on the warm"];
    let mut rows = String::from("[");
    for prompt in prompts {
        let greedy = ["generate", "--model", &model, "--prompt", prompt, "--temperature", "0"];
        let answer: Value =
            serde_json::from_str(&said(&[&greedy[..], &new, &["--json"]].concat())).unwrap();
        let text = answer["completions"][0]["text"].as_str().unwrap();
        let completion = text.strip_prefix(prompt).unwrap_or(text);
        rows += &serde_json::json!({ "prompt": prompt, "completion": completion }).to_string();
        rows += ",";
    }
    rows += &serde_json::json!({ "prompt": "a", "completion": "of no use" }).to_string();
    rows += "]";
    let file = folder.path().join("pairs.json");
    fs::write(&file, rows).unwrap();
    let base = ["eval", "--model", &model, "--data", file.to_str().unwrap()];
    let completion = [&base[..], &["--task", "completion"]].concat();
    let measured = |texts: &str| -> Value {
        let generate = [&completion[..], &["--generate", texts], &new, &["--json"]].concat();
        serde_json::from_str(&said(&generate)).unwrap()
    };
    let answer = measured("2");
    assert!(answer["perplexity"].is_number() && answer["generated"]["texts"] == 2, "{answer}");
    let rouge = &answer["generated"]["rouge_l"];
    for metric in ["bleu", "bleu_lowercase", "nist", "cider"] {
        assert!(answer["generated"][metric].is_number(), "{metric}: {answer}");
    }
    assert_eq!(answer["generated"]["brevity_penalty"], 1.0, "{answer}");
    assert!((rouge.as_f64().unwrap() - 1.0).abs() < 1e-9, "{answer}");
    let all = measured("100");
    assert_eq!(all["generated"]["texts"], 3, "the file has no more");
    assert!(all["generated"]["rouge_l"].as_f64().unwrap() < 1.0, "{all}");
    assert_eq!(all["generated"]["references"], 3);
    let plain: Value =
        serde_json::from_str(&said(&[&completion[..], &["--json"]].concat())).unwrap();
    assert!(plain.get("generated").is_none() && plain.get("auc").is_none(), "{plain}");
    refused(&[&base[..], &["--generate", "2"]].concat(), "--task completion");
    refused(&[&completion[..], &["--generate", "0"]].concat(), "at least 1");
    let penalty = ["--generate", "2", "--length-penalty", "0.8"];
    refused(
        &[&completion[..], &penalty].concat(),
        "--length-penalty has no effect without --beams",
    );
}

/// Rows with the same prompt are references of one completion, wherever they are in the file.
#[test]
fn a_completion_may_have_several_references() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), "gpt2-causal-lm", "tokenizer-bpe");
    let greedy =
        ["generate", "--model", &model, "--prompt", "the cat", "--temperature=0", "--json"];
    let answer: Value =
        serde_json::from_str(&said(&[&greedy[..], &["--max-new-tokens=8"]].concat())).unwrap();
    let text = answer["completions"][0]["text"].as_str().unwrap();
    let same = text.strip_prefix("the cat").unwrap_or(text);
    let row = |prompt: &str, completion: &str| {
        serde_json::json!({ "prompt": prompt, "completion": completion }).to_string() + "\n"
    };
    let rows = [row("the cat", "of no use"), row("on the", "warm mat"), row("the cat", same)];
    let file = folder.path().join("pairs.jsonl");
    fs::write(&file, rows.concat()).unwrap();
    let file = file.to_str().unwrap();
    let eval = ["eval", "--model", &model, "--data", file, "--task", "completion"];
    let eval = [&eval[..], &["--generate", "1", "--max-new-tokens", "8"]].concat();
    let answer: Value = serde_json::from_str(&said(&[&eval[..], &["--json"]].concat())).unwrap();
    let generated = &answer["generated"];
    assert_eq!((&generated["texts"], &generated["references"]), (&1.into(), &2.into()));
    assert_eq!((&generated["rouge_l"], &generated["beams"]), (&1.0.into(), &1.into()));
    let shown = said(&[&eval[..], &["--beams", "3"]].concat());
    assert!(shown.contains("1 text, 2 references, 3 beams"), "{shown}");
    assert!(shown.contains("NIST") && shown.contains("CIDEr"), "{shown}");
    refused(&[&eval[..], &["--beams", "0"]].concat(), "--beams must be from 1");
}

#[test]
fn a_language_model_is_evaluated_and_continues_texts() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), "gpt2-causal-lm", "tokenizer-bpe");
    let file = folder.path().join("lines.txt");
    fs::write(&file, "the cat sat\non the warm mat\n").unwrap();
    let file = file.to_str().unwrap();
    let answer: Value =
        serde_json::from_str(&said(&["eval", "--model", &model, "--data", file, "--json"]))
            .unwrap();
    let (loss, perplexity) =
        (answer["loss"].as_f64().unwrap(), answer["perplexity"].as_f64().unwrap());
    assert!((loss.exp() - perplexity).abs() < 1e-6 * perplexity && answer["examples"] == 2);
    let generate = |more: &[&str]| -> Value {
        let mut arguments = vec!["generate", "--model", &model, "--max-new-tokens", "5", "--json"];
        arguments.extend(more);
        serde_json::from_str(&said(&arguments)).unwrap()
    };
    let greedy = generate(&["--prompt", "the", "--temperature", "0"]);
    assert_eq!(greedy, {
        let mut again = generate(&["--prompt", "the", "--temperature", "0"]);
        again["seed"] = greedy["seed"].clone();
        again
    });
    let several = generate(&[
        "--prompts",
        file,
        "--samples",
        "2",
        "--seed",
        "7",
        "--top-k",
        "9",
        "--top-p",
        "0.9",
    ]);
    assert_eq!(several["completions"].as_array().unwrap().len(), 4);
    assert_eq!(several["completions"][0]["prompt"], "the cat sat");
    assert!(generate(&["--prompt", "the", "--beams", "3"])["completions"][0]["tokens"].is_array());
}

#[test]
fn an_adapter_can_be_used_or_merged_with_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) =
        (model(folder.path(), "bert-classification", "tokenizer-wordpiece"), data(folder.path()));
    let adapter = fixture("models/lora-bert");
    let adapter = adapter.to_str().unwrap();
    let merged = folder.path().join("merged");
    let merged = merged.to_str().unwrap();
    said(&["merge", "--model", &model, "--adapter", adapter, "--out", merged]);
    let loss = |arguments: &[&str]| -> f64 {
        let mut all = vec!["eval", "--data", &data, "--json"];
        all.extend(arguments);
        serde_json::from_str::<Value>(&said(&all)).unwrap()["loss"].as_f64().unwrap()
    };
    let (beside, inside) =
        (loss(&["--model", &model, "--adapter", adapter]), loss(&["--model", merged]));
    assert!((beside - inside).abs() < 1e-5, "{beside} and {inside}");
    assert!((beside - loss(&["--model", &model])).abs() > 1e-4, "the adapter does something");
    refused(&["merge", "--model", &model, "--adapter", adapter, "--out", merged], "already");
    refused(&["merge", "--model", &model, "--out", merged], "--adapter");
}

#[test]
fn mistakes_get_one_sentence_and_exit_code_2() {
    let sentences = Sentences::start();
    let folder = tempfile::tempdir().unwrap();
    let (model, data) =
        (model(folder.path(), "bert-classification", "tokenizer-wordpiece"), data(folder.path()));
    let eval = |more: &[&str], about: &str| {
        let mut arguments = vec!["eval"];
        arguments.extend(more);
        refused(&arguments, about);
    };
    eval(&["--model", "./nowhere", "--data", &data], "nowhere");
    eval(&["--model", &model, "--data", "missing.tsv"], "missing.tsv");
    eval(&["--model", &model, "--data", &data, "--text", "words"], "words");
    eval(&["--model", &model, "--data", &data, "--label", "mark"], "mark");
    eval(&["--model", &model, "--data", &data, "--max-tokens", "0"], "maximum number of tokens");
    eval(&["--model", &model, "--data", &data, "--batch", "0"], "--batch");
    eval(
        &["--model", &model, "--data", &data, "--task", "language-modeling"],
        "cannot generate text",
    );
    eval(&["--model", &model, "--adapter", "nowhere", "--data", &data], "adapter_config.json");
    let wrong = folder.path().join("wrong.tsv");
    fs::write(&wrong, "sentence\tlabel\nfine\tbad\nhm\tterrible\n").unwrap();
    eval(&["--model", &model, "--data", wrong.to_str().unwrap()], "terrible");
    fs::write(&wrong, "sentence\tlabel\nfine\n").unwrap();
    eval(&["--model", &model, "--data", wrong.to_str().unwrap()], ":2:");
    refused(&["predict", "--model", &model, "--data", &data, "--out", "x.xlsx"], ".jsonl");
    let before = fs::read(&data).unwrap();
    refused(&["predict", "--model", &model, "--data", &data, "--out", &data], "is an input file");
    assert_eq!(fs::read(&data).unwrap(), before, "what is read is not written over");
    refused(
        &["generate", "--model", &model, "--prompt", "the", "--samples", "10000000000000000"],
        "",
    );
    fs::create_dir(folder.path().join("open")).unwrap();
    refused(
        &["demo", "--data-only", "--out", folder.path().to_str().unwrap()],
        "that no demo wrote",
    );
    assert!(folder.path().join("open").exists(), "nobody else's folder is removed");
    for size in [
        "--vocabulary=0",
        "--tokens=18446744073709551615",
        "--batch=18446744073709551615",
        "--layers=0",
    ] {
        let name = size.split_once('=').unwrap().0;
        refused(&["bench", "step", size], name);
    }
    refused(&["generate", "--model", &model, "--prompt", "the"], "cannot generate text");
    let other = tempfile::tempdir().unwrap();
    let other = self::model(other.path(), "llama-causal-lm", "tokenizer-bpe");
    refused(&["generate", "--model", &other, "--prompt", "the"], "beyond the model's vocabulary");
    fs::write(Path::new(&model).join("tokenizer.json"), "{").unwrap();
    eval(&["--model", &model, "--data", &data], "tokenizer.json");
    fs::write(Path::new(&model).join("model.safetensors"), "short").unwrap();
    eval(&["--model", &model, "--data", &data], "model.safetensors");
    sentences.assert("use_model");
}

/// The contents of a safetensors file with one value replaced.
fn with_number(file: &Path, number: f32) -> Vec<u8> {
    let mut bytes = fs::read(file).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header + 40..8 + header + 44].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn broken_numbers_and_torn_weights_are_refused() {
    let sentences = Sentences::start();
    let folder = tempfile::tempdir().unwrap();
    let (model, data) =
        (model(folder.path(), "bert-classification", "tokenizer-wordpiece"), data(folder.path()));
    let eval = ["eval", "--model", &model, "--data", &data];
    let adapter = folder.path().join("adapter");
    fs::create_dir_all(&adapter).unwrap();
    let original = fixture("models/lora-bert");
    fs::copy(original.join("adapter_config.json"), adapter.join("adapter_config.json")).unwrap();
    fs::write(
        adapter.join("adapter_model.safetensors"),
        with_number(&original.join("adapter_model.safetensors"), f32::NAN),
    )
    .unwrap();
    let with_adapter: Vec<&str> =
        eval.iter().copied().chain(["--adapter", adapter.to_str().unwrap()]).collect();
    refused(&with_adapter, "not finite");
    let weights = Path::new(&model).join("model.safetensors");
    let whole = fs::read(&weights).unwrap();
    fs::write(&weights, with_number(&weights, f32::INFINITY)).unwrap();
    refused(&eval, "not finite");
    fs::write(&weights, &whole[..whole.len() - 3]).unwrap();
    refused(&eval, "cut off");
    fs::write(&weights, [&whole[..], b"xx"].concat()).unwrap();
    refused(&eval, "belong to no tensor");
    fs::write(&weights, whole).unwrap();
    let torn = folder.path().join("torn.tsv");
    fs::write(&torn, "sentence\nfine\nalso\tfine\n").unwrap();
    let out = folder.path().join("said.jsonl");
    refused(
        &[
            "predict",
            "--model",
            &model,
            "--data",
            torn.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ],
        ":3:",
    );
    assert!(
        !out.exists() && !folder.path().join("said.jsonl.undertone-part").exists(),
        "nothing half-written is left"
    );
    refused(
        &["predict", "--model", &model, "--data", &data, "--out", "no/such/said.jsonl"],
        "does not exist",
    );
    sentences.assert("use_model-files");
}

#[test]
fn an_unknown_level_of_instructions_is_refused() {
    for level in ["avx1024", "AVX2", "tiles"] {
        let output = Command::new(env!("CARGO_BIN_EXE_undertone"))
            .args(["budget", "epsilon", "--noise-multiplier", "1.1", "--examples", "600"])
            .args(["--batch", "20", "--epochs", "1", "--delta", "1e-3"])
            .env("UNDERTONE_CPU", level)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{level}: {error}");
        assert!(
            error.contains(level) && error.contains("amx, avx512, avx2 or portable"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "one sentence: {error}");
    }
}

#[test]
fn a_level_can_be_asked_for_up_to_the_highest_of_the_processor() {
    let listed: Value = serde_json::from_str(&said(&["device", "--json"])).unwrap();
    let step = ["bench", "step", "--arch", "bert", "--layers", "1", "--hidden", "16", "--heads"];
    let step = [&step[..], &["2", "--batch", "2", "--tokens", "5", "--steps", "1"]].concat();
    let step = [&step[..], &["--device", "cpu", "--method", "dp-sgd", "--cpu"]].concat();
    let levels = listed["processor_levels"].as_array().unwrap();
    for level in levels {
        said(&[&step[..], &[level.as_str().unwrap()]].concat());
    }
    let capped = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(&step)
        .arg("avx2")
        .env("UNDERTONE_CPU", "portable")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&capped.stderr);
    assert_eq!(capped.status.code(), Some(2), "{error}");
    assert!(error.contains("--cpu") && error.contains("portable"), "{error}");
    let shown = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .arg("device")
        .env("UNDERTONE_CPU", "portable")
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout);
    let detected = listed["processor_found"].as_str().unwrap();
    assert!(shown.contains(&format!("{detected} found, portable used")), "{shown}");
    if levels.len() < 4 {
        let lacking = Command::new(env!("CARGO_BIN_EXE_undertone"))
            .arg("device")
            .env("UNDERTONE_CPU", "amx")
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&lacking.stderr);
        assert_eq!(lacking.status.code(), Some(2), "{error}");
        assert!(error.contains("at most") && error.lines().count() == 1, "{error}");
    }
}
