//! The proposals and warnings of `init`.

use crate::bench::*;
use std::fs;
use std::process::{Command, Output};

fn init(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.current_dir(bench.folder.path()).arg("init").args(arguments);
    command.args(["--device", "cpu"]).stdin(std::process::Stdio::null()).output().unwrap()
}

/// Its standard output and standard error.
fn said(bench: &Bench, arguments: &[&str]) -> (String, String) {
    let output = init(bench, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

const NEW: [&str; 5] = ["--model", "./model", "--out", "new.toml", "--force"];

fn file(bench: &Bench) -> String {
    String::from_utf8(bench.bytes("new.toml")).unwrap()
}

#[test]
fn a_title_and_a_text_are_a_pair() {
    let bench = Bench::classifier();
    let rows: String =
        (0..40).map(|i| format!("the cat,sat on the sun,{}\n", ["bad", "good"][i % 2])).collect();
    fs::write(bench.path("news.csv"), format!("title,text,topic\n{rows}")).unwrap();
    let (printed, _) =
        said(&bench, &[&["news.csv", "--labels", "bad,neutral,good"], &NEW[..]].concat());
    assert!(printed.contains("topic from title and text"), "{printed}");
    assert!(file(&bench).contains("text = [\"title\", \"text\"]"), "{}", file(&bench));
    let text = ["news.csv", "--text", "text", "--labels", "bad,neutral,good", "--no-timing"];
    let (printed, _) = said(&bench, &[&text, &NEW[..]].concat());
    assert!(printed.contains("topic from text") && printed.contains("not measured"), "{printed}");
}

#[test]
fn columns_within_objects_are_listed_and_an_author_is_suggested() {
    let bench = Bench::classifier();
    let rows: String = (0..40)
        .map(|i| {
            let label = ["bad", "good"][i % 2];
            format!(
                "{{\"headers\": {{\"From\": \"p{}\", \"To\": \"q\"}}, \"body\": \"the cat sat\", \
                 \"label\": \"{label}\"}}\n",
                i % 10
            )
        })
        .collect();
    fs::write(bench.path("mail.jsonl"), rows).unwrap();
    let mail = ["mail.jsonl", "--labels", "bad,neutral,good", "--no-timing"];
    let (printed, _) = said(&bench, &[&mail, &NEW[..]].concat());
    for part in ["headers.From, headers.To", "unit", "one row; headers.From may say whose it is"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(printed.contains("--author headers.From") && printed.contains("40 units"), "{printed}");
    let author = ["--author", "headers.From"];
    let (printed, _) = said(&bench, &[&mail, &author[..], &NEW].concat());
    assert!(
        printed.contains("10 units") && printed.contains("all rows of one headers.From"),
        "{printed}"
    );
    assert!(file(&bench).contains("author = \"headers.From\""));
}

#[test]
fn one_label_in_all_rows_is_a_warning() {
    let bench = Bench::classifier();
    fs::write(bench.path("same.csv"), format!("text,label\n{}", "the cat,ham\n".repeat(40)))
        .unwrap();
    let same = ["same.csv", "--labels", "ham,spam,eggs", "--no-timing"];
    let (printed, warned) = said(&bench, &[&same, &NEW[..]].concat());
    assert!(
        warned.contains("warning: column \"label\" has the same value in every row"),
        "{warned}"
    );
    assert!(!warned.contains("ham") && !printed.contains("same value"), "{printed}{warned}");
    let (_, warned) = said(&bench, &[&["rows.tsv", "--no-timing"], &NEW[..]].concat());
    assert!(!warned.contains("same value"), "{warned}");
}

#[test]
fn time_is_that_of_a_typical_text() {
    let bench = Bench::classifier();
    let rows = ["rows.tsv", "--no-author"];
    let (printed, _) = said(&bench, &[&rows, &NEW[..]].concat());
    assert!(printed.contains("tokens per text (assumed; --typical-tokens"), "{printed}");
    assert!(printed.contains("one row; who may say whose it is: use --author who"), "{printed}");
    let (printed, _) = said(&bench, &[&rows, &NEW[..], &["--typical-tokens", "7"]].concat());
    assert!(printed.contains("with 7 tokens per text (as given)"), "{printed}");
    let (printed, _) = said(&bench, &[&rows, &NEW[..], &["--sample", "rows.tsv"]].concat());
    assert!(printed.contains("tokens per text (the mean of rows.tsv)"), "{printed}");
}

#[test]
fn a_missing_file_is_the_first_mistake() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    assert!(bench.path("run.toml").exists());
    refused(&init(&bench, &["nothing.csv"]), "nothing.csv does not exist");
    refused(&init(&bench, &["rows.tsv"]), "run.toml exists");
    refused(&init(&bench, &[&["rows.tsv", "--sample", "no.csv"], &NEW[..]].concat()), "no.csv");
    sentences.assert("init");
}

/// The label becomes a control code, and several texts become a record.
#[test]
fn a_run_file_for_synthetic_rows() {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-bpe", "task = \"language-modeling\"");
    let rows: String =
        (0..40).map(|i| format!("the cat,sat on the sun,{}\n", ["bad", "good"][i % 2])).collect();
    fs::write(bench.path("news.csv"), format!("title,text,topic\n{rows}")).unwrap();
    let base = ["news.csv", "--synthesize", "--no-timing", "--text", "title,text"];
    let labels = ["--label", "topic", "--labels", "bad,good"];
    let (message, _) = said(&bench, &[&base[..], &labels, &NEW].concat());
    assert!(message.contains("undertone synthesize new.toml --out runs/first"), "{message}");
    let written = file(&bench);
    for line in [
        "prompt = \"\"\"\ntopic: {topic}\n\"\"\"",
        "completion = '{{\"title\": {title:json}, \"text\": {text:json}}}'",
        "codes = { \"topic\" = [\"bad\", \"good\"] }",
        "[synthesis]",
    ] {
        assert!(written.contains(line), "{line}: {written}");
    }
    let undeclared = init(&bench, &[&base[..], &["--label", "topic"], &NEW].concat());
    refused(&undeclared, "name them with --labels");
}
