//! `audit` from the command line.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

fn audit(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).arg("audit").args(arguments).output().unwrap()
}

#[test]
fn membership_has_intervals_a_drawing_and_a_place_in_the_folder() {
    let bench = Bench::classifier();
    bench.train("run", &["--set", "training.epochs=1"]);
    let run = bench.path("run");
    let output = audit(&["membership", "--json", "--shadows", "2", "--run", run.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let attacks: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(attacks.len(), 4);
    for attack in &attacks {
        let of = |key: &str| attack["auc"][key].as_f64().unwrap();
        assert!(of("lower") <= of("estimate") && of("estimate") <= of("upper"));
        // Here the validation file is the training file, so attacks cannot distinguish them beyond
        // the last digits of a loss.
        if attack["attack"] != "likelihood ratio of shadow models" {
            assert!((of("estimate") - 0.5).abs() < 0.1, "{attack}");
        }
    }
    let kept: Value =
        serde_json::from_str(&fs::read_to_string(run.join("audit.json")).unwrap()).unwrap();
    assert_eq!(kept["membership"].as_array().unwrap().len(), 4);
    assert!(fs::read_to_string(run.join("membership.svg")).unwrap().contains("likelihood ratio"));
    // A damaged file is refused instead of replaced: it may contain the results of another attack.
    fs::write(run.join("audit.json"), "{\"one_run\": {").unwrap();
    refused(&audit(&["membership", "--run", run.to_str().unwrap()]), "is damaged");
    assert_eq!(fs::read_to_string(run.join("audit.json")).unwrap(), "{\"one_run\": {");
}

/// The pretrained model, which is attacked for comparison, has the same number of classes as the
/// trained one, even if the classes were read from the training file.
#[test]
fn membership_knows_the_classes_that_were_found() {
    let bench = Bench::new("bert-masked-lm", "tokenizer-wordpiece", "task = \"classification\"");
    let rows = fs::read_to_string(bench.path("rows.tsv")).unwrap();
    let with_three = |(number, row): (usize, &str)| match number % 3 {
        0 => row.replace("\tbad\t", "\tso-so\t").replace("\tgood\t", "\tso-so\t") + "\n",
        _ => format!("{row}\n"),
    };
    let rows: String = rows.lines().enumerate().map(with_three).collect();
    fs::write(bench.path("rows.tsv"), rows).unwrap();
    for tuning in ["head", "full"] {
        bench.train(tuning, &["--set", &format!("model.tuning={tuning}")]);
        let run = bench.path(tuning);
        let output = audit(&["membership", "--json", "--run", run.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let attacks: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(attacks.len(), 3);
    }
}

#[test]
fn mistakes_are_one_sentence() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    refused(
        &audit(&["membership", "--run", bench.path("model").to_str().unwrap()]),
        "finished run",
    );
    let run = bench.path("run.toml");
    let out = bench.path("one");
    let one_run = |more: &[&str]| {
        let arguments = ["one-run", "--run", run.to_str().unwrap(), "--out", out.to_str().unwrap()];
        audit(&arguments.into_iter().chain(more.iter().copied()).collect::<Vec<_>>())
    };
    refused(&one_run(&["--canaries", "3"]), "--canaries");
    refused(
        &one_run(&["--set", "privacy.method=dp-forward", "--set", "model.tuning=head"]),
        "perturbed embeddings",
    );
    sentences.assert("audit");
}

#[test]
fn one_run_bounds_epsilon_below_what_was_promised() {
    let bench = Bench::classifier();
    let (run, out) = (bench.path("run.toml"), bench.path("one"));
    let output = audit(&[
        "one-run",
        "--json",
        "--canaries",
        "100",
        "--run",
        run.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((answer["canaries"].as_u64(), answer["guesses"].as_u64()), (Some(100), Some(20)));
    assert!(answer["epsilon_lower"].as_f64().unwrap() <= 8.0);
    let kept: Value =
        serde_json::from_str(&fs::read_to_string(out.join("audit.json")).unwrap()).unwrap();
    assert_eq!(kept["one_run"], answer);
    let again = bench.path("again");
    let output = audit(&[
        "one-run",
        "--json",
        "--score",
        "update",
        "--canaries",
        "50",
        "--run",
        run.to_str().unwrap(),
        "--out",
        again.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn exposure_ranks_planted_digits() {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-wordpiece", "task = \"language-modeling\"");
    bench.train("run", &["--set", "training.epochs=1"]);
    let (run, file) = (bench.path("run"), bench.path("canaries.jsonl"));
    let arguments = [
        "exposure",
        "--json",
        "--run",
        run.to_str().unwrap(),
        "--canaries",
        file.to_str().unwrap(),
    ];
    fs::write(
        &file,
        "{\"text\": \"the cat sat ##\", \"secret\": \"42\"}\n{\"text\": \"dog \
     ######\", \"secret\": \"123456\"}\n",
    )
    .unwrap();
    let output = audit(&arguments.into_iter().chain(["--candidates", "200"]).collect::<Vec<_>>());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (rows[0]["trained"]["exact"].as_bool(), rows[1]["trained"]["exact"].as_bool()),
        (Some(true), Some(false))
    );
    assert!((rows[0]["trained"]["most"].as_f64().unwrap() - 100_f64.log2()).abs() < 1e-9);
    for row in &rows {
        let (bits, most) =
            (row["trained"]["bits"].as_f64().unwrap(), row["trained"]["most"].as_f64().unwrap());
        assert!((0.0..=most).contains(&bits), "{row}");
    }
    fs::write(&file, "{\"text\": \"the cat ##\", \"secret\": \"4\"}\n").unwrap();
    refused(&audit(&arguments), "one digit for every #");
}

#[test]
fn inversion_gets_harder_as_epsilon_falls() {
    let bench = Bench::classifier();
    let rows = bench.path("rows.tsv");
    let output = audit(&[
        "inversion",
        "--json",
        "--model",
        bench.path("model").to_str().unwrap(),
        "--data",
        rows.to_str().unwrap(),
        "--known",
        rows.to_str().unwrap(),
        "--text",
        "sentence",
        "--after",
        "0,1",
        "--epsilon",
        "1,1000",
        "--epochs",
        "5",
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.len(), 6);
    let nearest = |i: usize| rows[i]["nearest"].as_f64().unwrap();
    assert!(nearest(0) > 0.9, "without noise every embedding is its token's: {}", nearest(0));
    assert!(
        nearest(1) < nearest(2) && nearest(1) < 0.6 * nearest(0),
        "{} {} {}",
        nearest(0),
        nearest(1),
        nearest(2)
    );
}

#[test]
fn attributes_are_told_from_embeddings_without_noise_and_not_under_much_of_it() {
    let bench = Bench::classifier();
    // The attribute is whether a text starts with a certain word, which the first rows reveal.
    let rows: String = (0..200)
        .map(|i| {
            let word = WORDS[i % 2];
            format!("{word} {} {}\t{word}\n", WORDS[(i * 5) % 8], WORDS[(i * 3) % 8])
        })
        .collect();
    let file = bench.path("attributes.tsv");
    fs::write(&file, format!("text\tfirst\n{rows}")).unwrap();
    let (model, file) = (bench.path("model"), file.to_str().unwrap());
    let arguments = [
        "attribute",
        "--json",
        "--model",
        model.to_str().unwrap(),
        "--data",
        file,
        "--known",
        file,
        "--after",
        "0",
    ];
    let output = audit(
        &[&arguments[..], &["--attribute", "first", "--epsilon", "0.1", "--epochs", "60"]].concat(),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let right = |i: usize| rows[i]["right"]["estimate"].as_f64().unwrap();
    assert!(right(0) > 0.85 && right(1) < 0.65, "{} {}", right(0), right(1));
    refused(&audit(&[&arguments[..], &["--attribute", "absent"]].concat()), "absent");
}

#[test]
fn attacks_on_language_models_refuse_what_they_cannot_do() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    bench.train("run", &["--set", "training.epochs=1"]);
    let run = bench.path("run");
    for attack in ["extraction", "reconstruction"] {
        refused(&audit(&[attack, "--run", run.to_str().unwrap()]), "needs a language model");
    }
    let all = audit(&["all", "--run", run.to_str().unwrap()]);
    assert!(all.status.success(), "{}", String::from_utf8_lossy(&all.stderr));
    assert!(String::from_utf8_lossy(&all.stdout).contains("The run guarantees ε ="));

    let texts = Bench::new("gpt2-causal-lm", "tokenizer-wordpiece", "task = \"language-modeling\"");
    texts.train("run", &["--set", "training.epochs=1"]);
    let run = texts.path("run");
    let run = run.to_str().unwrap();
    refused(&audit(&["reconstruction", "--run", run]), "no PII was found");
    refused(
        &audit(&["extraction", "--run", run, "--tagger", texts.path("model").to_str().unwrap()]),
        "tagger",
    );
    refused(&audit(&["extraction", "--run", run, "--spans", "label"]), "the spans cannot be read");
    sentences.assert("audit-language-models");
}
