//! Conversations, templates, several files and packed texts through the command line.

use crate::bench::*;
use std::fs;

const CHAT: &str = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}\
     {% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";

/// A language model whose run file has a different [data] section.
fn language(data: &str) -> Bench {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-bpe", "task = \"language-modeling\"");
    fs::write(bench.path("model/chat_template.jinja"), CHAT).unwrap();
    let run = fs::read_to_string(bench.path("run.toml")).unwrap();
    let (before, rest) = run.split_once("[data]\n").unwrap();
    let (_, after) = rest.split_once("[privacy]").unwrap();
    let run = format!("{before}[data]\n{data}\nmax_tokens = 16\n[privacy]{after}");
    let run = run.replace("FOLDER", bench.folder.path().to_str().unwrap());
    fs::write(bench.path("run.toml"), run).unwrap();
    bench
}

fn conversations(bench: &Bench) {
    for (file, words) in [("a.jsonl", "cat sat"), ("b.jsonl", "dog ran")] {
        let rows: String = (0..60)
            .map(|i| {
                let answer = WORDS[i % 8];
                format!(
                    "{{\"messages\": [{{\"role\": \"user\", \"content\": \"the {words}\"}}, \
                     {{\"role\": \"assistant\", \"content\": \"{answer}\"}}]}}\n"
                )
            })
            .collect();
        fs::write(bench.path(file), rows).unwrap();
    }
}

#[test]
fn a_model_learns_conversations_of_several_files() {
    let bench =
        language("task = \"chat\"\ntrain = \"FOLDER/[ab].jsonl\"\nvalidation = \"FOLDER/a.jsonl\"");
    conversations(&bench);
    let summary = bench.train("out", &["--seed", "1"]);
    assert_eq!(summary["resolved"]["units"], 120);
    let epsilon = summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(epsilon <= 8.0 && epsilon > 7.0, "{epsilon}");
    let model = bench.path("out/model");
    assert!(model.join("chat_template.jinja").is_file(), "the template goes with the model");
    let (model, data) = (model.to_str().unwrap().to_owned(), bench.path("b.jsonl"));
    let answer = run(&[
        "eval",
        "--model",
        &model,
        "--data",
        data.to_str().unwrap(),
        "--task",
        "chat",
        "--json",
    ]);
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert!(answer["perplexity"].as_f64().unwrap() > 1.0 && answer["examples"] == 60, "{answer}");
    // One of the private files cannot be declared public, whatever the path.
    let validation = format!("data.validation={:?}", bench.path("a.jsonl"));
    let public = ["--set", &validation, "--set", "data.validation_is_public=true"];
    bench.refused("refused", &public, "is the private training file");
    let importance = format!("privacy.anadp.importance={{ public = {:?} }}", bench.path("b.jsonl"));
    let anadp = ["--set", "privacy.method=anadp", "--set", &importance];
    bench.refused("refused", &anadp, "is the private training file");
    bench.refused("refused", &["--set", "data.prompt=a"], "data.prompt is for");
    bench.refused("refused", &["--set", "data.text=a"], "leave data.text out");
    bench.refused("refused", &["--set", "data.train=none-*.jsonl"], "no file matches");
    fs::write(bench.path("model/chat_template.jinja"), "{% for %}").unwrap();
    bench.refused("refused", &[], "the chat template is unusable");
}

/// One instruction of a template can double a text, so a limit on instructions does not bound its
/// memory.
#[test]
fn a_template_that_takes_all_memory_is_refused() {
    let bench = language("task = \"chat\"\ntrain = \"FOLDER/a.jsonl\"");
    conversations(&bench);
    for step in [
        "{% set ns.s = ns.s ~ ns.s %}",
        "{% set ns.s = ns.s + ns.s %}",
        "{% set ns.s = [ns.s, ns.s] | join %}",
        "{% set ns.s = ns.s | replace('a', ns.s) %}",
        "{% set ns.s = '%s%s' | format(ns.s, ns.s) %}",
        "{% set ns.s = double(ns.s) %}",
    ] {
        let template = format!(
            "{{% macro double(s) %}}{{{{ s }}}}{{{{ s }}}}{{% endmacro %}}\
             {{% set ns = namespace(s='ab') %}}{{% for i in range(60) %}}{step}{{% endfor %}}{CHAT}"
        );
        fs::write(bench.path("model/chat_template.jinja"), template).unwrap();
        bench.refused("refused", &[], "it takes far more memory than the conversation");
    }
    let template = "{% set ns = namespace(s='ab') %}{% for i in range(60) %}\
                    {% set ns.s = ns.s * 99 %}{% endfor %}";
    fs::write(bench.path("model/chat_template.jinja"), template).unwrap();
    bench.refused("refused", &[], "repeated string is too large");
}

#[test]
fn prompts_are_filled_from_templates() {
    let bench = language(
        "task = \"completion\"\ntrain = \"FOLDER/rows.tsv\"\nprompt = \"{who}: {sentence}\"\n\
         completion = \" {label}\"",
    );
    let summary = bench.train("out", &["--seed", "1"]);
    assert_eq!(summary["resolved"]["units"], 120);
    bench.refused("refused", &["--set", "data.prompt={who"], "braces");
    bench.refused("refused", &["--set", "data.prompt={whom}"], "no column \"whom\"");
    bench.refused("refused", &["--set", "data.messages=who"], "data.messages is for");
}

#[test]
fn packing_is_for_authors() {
    let bench = language(
        "task = \"language-modeling\"\ntrain = \"FOLDER/rows.tsv\"\ntext = \"sentence\"\n\
         author = \"who\"\npack = true",
    );
    let summary = bench.train("out", &["--seed", "1"]);
    assert_eq!(summary["resolved"]["units"], 40);
    assert_eq!(summary["guarantee"]["unit"], "user");
    bench.refused("refused", &["--unset", "data.author"], "data.pack is for runs with data.author");
}
