//! The facts that a run stores for later use: columns, task, maximum length, base model, and class
//! names, which stay in the run folder unless they may be public.

use crate::bench::*;
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Output};

/// The program in the bench's folder.
fn undertone(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.current_dir(bench.folder.path()).args(arguments).output().unwrap()
}

fn succeeds(bench: &Bench, arguments: &[&str]) -> Output {
    let output = undertone(bench, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    output
}

fn json_of(bench: &Bench, arguments: &[&str]) -> Value {
    let all = [arguments, &["--json"]].concat();
    serde_json::from_slice(&succeeds(bench, &all).stdout).unwrap()
}

/// A classifier of titles and bodies in columns with unusual names, whose base model has no
/// classes.
fn pairs(labels: &str) -> Bench {
    let bench =
        Bench::new("bert-classification", "tokenizer-wordpiece", "task = \"classification\"");
    let config = String::from_utf8(bench.bytes("model/config.json")).unwrap();
    let config = config.replace("ForSequenceClassification", "Model");
    fs::write(bench.path("model/config.json"), config).unwrap();
    let rows: String = (0..120)
        .map(|i| {
            let [subject, object] = [WORDS[i % 8], WORDS[(i * 3) % 8]];
            format!(
                "{subject}\t{object} sat on the {subject}\t{}\n",
                ["bad", "neutral", "good"][i % 3]
            )
        })
        .collect();
    fs::write(bench.path("pairs.tsv"), format!("title\ttext\ttopic\n{rows}")).unwrap();
    let run = format!(
        "[model]\npath = \"model\"\ntuning = {{ lora = {{ rank = 2 }} }}\n[data]\ntask = \
         \"classification\"\ntrain = \"pairs.tsv\"\nvalidation = \"pairs.tsv\"\ntext = [\"title\", \
         \"text\"]\nlabel = \"topic\"\nmax_tokens = 9\n{labels}[privacy]\nepsilon = 8.0\ndelta = \
         1e-3\n[training]\nepochs = 1\nbatch = 20\nlearning_rate = 1e-3\n"
    );
    fs::write(bench.path("run.toml"), run).unwrap();
    succeeds(&bench, &["train", "run.toml", "--out", "runs/first"]);
    bench
}

#[test]
fn a_run_is_used_with_the_columns_and_the_length_of_its_training() {
    let bench = pairs("");
    let summary: Value =
        serde_json::from_slice(&bench.bytes("runs/first/private/summary.json")).unwrap();
    let in_training = summary["metrics"]["validation"]["loss"].as_f64().unwrap();
    let loss = |arguments: &[&str]| {
        let answer = json_of(&bench, &[&["eval", "--data", "pairs.tsv"], arguments].concat());
        answer["loss"].as_f64().unwrap()
    };
    // The result equals that of training, however the model is specified.
    let ways: [&[&str]; 5] = [
        &["--run", "runs/first"],
        &["--adapter", "runs/first"],
        &["--adapter", "runs/first/adapter"],
        &["--adapter", "runs/first/adapter", "--model", "./model"],
        &["--run", "runs/first", "--text", "title,text", "--label", "topic", "--max-tokens", "9"],
    ];
    for way in ways {
        assert!((loss(way) - in_training).abs() < 1e-6, "{way:?}: {} {in_training}", loss(way));
    }
    assert!((loss(&["--run", "runs/first", "--text", "text"]) - in_training).abs() > 1e-6);
    // A moved adapter still has its base model and its columns, but no private names.
    let rows = String::from_utf8(bench.bytes("pairs.tsv")).unwrap();
    let rows = rows.replace("\tbad", "\t0").replace("\tgood", "\t1").replace("\tneutral", "\t2");
    fs::write(bench.path("numbers.tsv"), rows).unwrap();
    let by_number = |arguments: &[&str]| {
        let answer = json_of(&bench, &[&["eval", "--data", "numbers.tsv"], arguments].concat());
        answer["loss"].as_f64().unwrap()
    };
    fs::create_dir(bench.path("moved")).unwrap();
    fs::rename(bench.path("runs/first/adapter"), bench.path("moved/adapter")).unwrap();
    assert!((by_number(&["--adapter", "moved/adapter"]) - in_training).abs() < 1e-6);
    fs::rename(bench.path("moved/adapter"), bench.path("runs/first/adapter")).unwrap();
    succeeds(&bench, &["merge", "--run", "runs/first", "--out", "merged"]);
    assert!((by_number(&["--model", "merged"]) - in_training).abs() < 1e-4);
    succeeds(
        &bench,
        &["predict", "--run", "runs/first", "--data", "pairs.tsv", "--out", "p.jsonl"],
    );
    assert!(String::from_utf8(bench.bytes("p.jsonl")).unwrap().contains("\"good\""));
}

#[test]
fn a_column_of_training_must_be_there() {
    let sentences = Sentences::start();
    let bench = pairs("");
    let rows = String::from_utf8(bench.bytes("pairs.tsv")).unwrap();
    fs::write(bench.path("other.tsv"), rows.replace("title\ttext\ttopic", "head\ttext\ttopic"))
        .unwrap();
    fs::write(bench.path("bare.tsv"), rows.replace("title\ttext\ttopic", "title\ttext\tclass"))
        .unwrap();
    let eval =
        |more: &[&str]| undertone(&bench, &[&["eval", "--run", "runs/first"], more].concat());
    refused(&eval(&["--data", "other.tsv"]), "no column \"title\", which the model was trained on");
    refused(&eval(&["--data", "bare.tsv"]), "--label");
    refused(&eval(&["--data", "pairs.tsv", "--prompt", "title"]), "--prompt has no effect");
    refused(&eval(&["--data", "pairs.tsv", "--adapter", "runs/first"]), "cannot be used with");
    succeeds(
        &bench,
        &["eval", "--run", "runs/first", "--data", "other.tsv", "--text", "head,text"],
    );
    succeeds(&bench, &["eval", "--run", "runs/first", "--data", "bare.tsv", "--label", "class"]);
    refused(&undertone(&bench, &["eval", "--data", "pairs.tsv"]), "--model");
    refused(&undertone(&bench, &["eval", "--model", "runs/first", "--data", "pairs.tsv"]), "--run");
    refused(
        &undertone(&bench, &["eval", "--run", "model", "--data", "pairs.tsv"]),
        "not the folder of a run",
    );
    refused(
        &undertone(&bench, &["merge", "--model", "./model", "--out", "m"]),
        "specify the adapter to merge",
    );
    // The base model has been moved.
    fs::rename(bench.path("model"), bench.path("base")).unwrap();
    refused(&eval(&["--data", "pairs.tsv"]), "--model");
    succeeds(&bench, &["eval", "--run", "runs/first", "--model", "./base", "--data", "pairs.tsv"]);
    sentences.assert("remembered");
}

/// Class names are written beside the model only if they are public.
#[test]
fn names_found_in_the_file_stay_in_the_run_folder() {
    let names = |bench: &Bench| -> Value {
        serde_json::from_slice(&bench.bytes("runs/first/adapter/labels.json")).unwrap()
    };
    let private = pairs("");
    assert_eq!(names(&private), json!(["LABEL_0", "LABEL_1", "LABEL_2"]));
    let remembered: Value =
        serde_json::from_slice(&private.bytes("runs/first/adapter/undertone.json")).unwrap();
    assert_eq!(
        remembered,
        json!({
            "max_tokens": 9, "task": "classification", "text": ["title", "text"],
            "label": "topic"
        })
    );
    let given = "labels = [\"good\", \"neutral\", \"bad\"]\n";
    assert_eq!(names(&pairs(given)), json!(["good", "neutral", "bad"]));
    assert_eq!(names(&pairs("publish_labels = true\n")), json!(["bad", "good", "neutral"]));
}

#[test]
fn a_whole_model_is_found_in_its_run() {
    let bench = Bench::classifier();
    bench.train("runs/whole", &["--set", "training.epochs=1"]);
    let eval = ["eval", "--run", "runs/whole", "--data", "rows.tsv"];
    assert_eq!(json_of(&bench, &eval)["examples"], 120);
    refused(
        &undertone(&bench, &["eval", "--adapter", "runs/whole", "--data", "rows.tsv"]),
        "--run runs/whole",
    );
    refused(
        &undertone(&bench, &[&eval[..], &["--model", "./model"]].concat()),
        "leave out --model",
    );
    refused(
        &undertone(&bench, &["merge", "--run", "runs/whole", "--out", "m"]),
        "specify the adapter to merge",
    );
}

const CHAT: &str = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}\
     {% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";

/// A language model whose run reads columns other than the usual ones.
fn language(data: &str) -> Bench {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-bpe", "task = \"language-modeling\"");
    fs::write(bench.path("model/chat_template.jinja"), CHAT).unwrap();
    let rows: String = (0..60)
        .map(|i| {
            let answer = WORDS[i % 8];
            let turns = json!([
                { "role": "user", "content": "the cat" }, { "role": "assistant", "content": answer }
            ]);
            json!({ "place": "Bath", "question": "the cat", "answer": answer, "talk": turns })
                .to_string()
                + "\n"
        })
        .collect();
    fs::write(bench.path("rows.jsonl"), rows).unwrap();
    let run = format!(
        "[model]\npath = \"model\"\ntuning = {{ lora = {{ rank = 2 }} }}\n[data]\ntrain = \
         \"rows.jsonl\"\nmax_tokens = 20\n{data}\n[privacy]\nepsilon = 8.0\ndelta = \
         1e-3\n[training]\nepochs = 1\nbatch = 20\nlearning_rate = 1e-3\n"
    );
    fs::write(bench.path("run.toml"), run).unwrap();
    succeeds(&bench, &["train", "run.toml", "--out", "runs/first"]);
    bench
}

#[test]
fn templates_are_remembered() {
    let bench = language(
        "task = \"completion\"\nprompt = \"{place}: {question}\"\ncompletion = \" {answer}\"",
    );
    let run = ["--run", "runs/first"];
    let eval = [&["eval", "--data", "rows.jsonl", "--generate", "2"], &run[..]].concat();
    let evaluated = json_of(&bench, &eval);
    // All rows have the same prompt.
    let generated = &evaluated["generated"];
    let counts = [&evaluated["examples"], &generated["texts"], &generated["references"]];
    assert_eq!(counts, [&Value::from(60), &Value::from(1), &Value::from(60)]);
    let prompts = ["generate", "--prompts", "rows.jsonl", "--max-new-tokens", "2"];
    let continued = json_of(&bench, &[&prompts, &run[..]].concat());
    assert_eq!(continued["completions"][0]["prompt"], "Bath: the cat");
    let other = json_of(&bench, &[&prompts, &run[..], &["--prompt-column", "{answer}!"]].concat());
    assert_eq!(other["completions"][0]["prompt"], format!("{}!", WORDS[0]));
}

#[test]
fn a_model_of_conversations_is_asked_in_its_chat_template() {
    let bench = language("task = \"chat\"\nmessages = \"talk\"");
    let evaluated = json_of(&bench, &["eval", "--run", "runs/first", "--data", "rows.jsonl"]);
    assert_eq!(evaluated["examples"], 60);
    let generate = |model: &[&str], prompt: &str, more: &[&str]| {
        let new = ["generate", "--max-new-tokens", "4", "--temperature", "0", "--prompt", prompt];
        json_of(&bench, &[&new[..], model, more].concat())["completions"][0].clone()
    };
    let run = ["--run", "runs/first"];
    let asked = generate(&run, "the cat", &[]);
    let plain = generate(&run, "user: the cat\nassistant: ", &["--chat=false"]);
    assert_eq!(asked["tokens"], plain["tokens"]);
    let (answer, whole) = (asked["text"].as_str().unwrap(), plain["text"].as_str().unwrap());
    assert!(!answer.contains("user:") && whole.ends_with(answer), "{answer} {whole}");
    // Other models require the flag.
    let base = ["--model", "./model"];
    assert_eq!(
        generate(&base, "the cat", &["--chat"])["tokens"],
        generate(&base, "user: the cat\nassistant: ", &[])["tokens"]
    );
}
