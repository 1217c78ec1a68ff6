//! A language model that learns its letters by heart gives them away, and one that was trained
//! privately does not.

mod bench;

use bench::run;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Letters that are attacked, and as many others.
const LETTERS: usize = 48;

/// The demo's model, some of its letters, and a run file for a language model. All letters tell a
/// name and a code, so that own and other ones differ in nothing but that; the first twelve are the
/// planted secrets', one each. own.tsv has the letters that are attacked, all.tsv those and some
/// nine hundred more.
fn prepare(folder: &Path) -> PathBuf {
    run(&["demo", "--data-only", "--out", folder.to_str().unwrap()]);
    let telling = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        text.lines()
            .skip(1)
            .filter(|row| row.contains("the code of my file"))
            .map(str::to_owned)
            .collect()
    };
    let names = fs::read_to_string(folder.join("names.txt")).unwrap();
    let (letters, others) = (telling("train.tsv"), telling("validation.tsv"));
    let says = |row: &str, name: &str| row.contains(&format!("my name is {name} and"));
    let planted = names.lines().map(|name| letters.iter().rfind(|row| says(row, name)).unwrap());
    let rest = letters.iter().filter(|row| !names.lines().any(|name| says(row, name)));
    let all: Vec<String> = planted.chain(rest).cloned().collect();
    // Each planted letter up to its code, as it was read.
    let canaries: Vec<String> = all[..12]
        .iter()
        .map(|row| {
            let (before, after) = row.split_once("the code of my file is ").unwrap();
            let text = format!("{before}the code of my file is # # # # # #");
            let secret: String = after[..11].chars().filter(char::is_ascii_digit).collect();
            json!({ "text": text, "secret": secret }).to_string()
        })
        .collect();
    fs::write(folder.join("canaries.jsonl"), canaries.join("\n")).unwrap();
    let table = |rows: &[String]| format!("text\tlabel\n{}\n", rows.join("\n"));
    fs::write(folder.join("all.tsv"), table(&all)).unwrap();
    fs::write(folder.join("own.tsv"), table(&all[..LETTERS])).unwrap();
    fs::write(folder.join("others.tsv"), table(&others[..LETTERS])).unwrap();
    let file = folder.join("letters.toml");
    let text = format!(
        "[model]\npath = {:?}\ntuning = \"full\"\n[data]\ntask = \"language-modelling\"\ntrain = {:?}\nvalidation = {:?}\ntext = \"text\"\nmax_tokens = 96\n\
         [privacy]\nmethod = \"none\"\n[training]\nepochs = 100\nbatch = 16\nlearning_rate = \
          1e-3\n",
        folder.join("model"),
        folder.join("own.tsv"),
        folder.join("others.tsv"),
    );
    fs::write(&file, text).unwrap();
    file
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn what_was_learnt_by_heart_is_found_and_what_was_learnt_privately_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = prepare(folder.path());
    let file = file.to_str().unwrap();
    run(&["train", file, "--out", &at("open"), "--seed", "1"]);
    let all = format!("data.train={}", at("all.tsv"));
    let private = [
        "privacy.method=dp-sgd",
        "privacy.epsilon=8",
        "privacy.delta=1e-4",
        "training.epochs=5",
        "training.batch=256",
        "training.seed=1",
        &all,
    ];
    let private: Vec<&str> = private.iter().flat_map(|change| ["--set", change]).collect();
    run(&[&["train", file, "--out", &at("private")], &private[..]].concat());

    let found = run(&[
        "audit",
        "all",
        "--json",
        "--run",
        &at("private"),
        "--non-private",
        &at("open"),
        "--canaries",
        &at("canaries.jsonl"),
        "--names",
        &at("names.txt"),
        "--kind",
        "person",
        "--texts",
        "64",
        "--tokens",
        "64",
        "--targets",
        "16",
        "--candidates",
        "200",
        "--examples",
        "48",
    ]);
    let found: Value = serde_json::from_slice(&found).unwrap();
    let figure = |name: &str| -> Value {
        let all = found["figures"].as_array().unwrap();
        all.iter()
            .find(|f| f["attack"].as_str().unwrap().contains(name))
            .unwrap_or_else(|| panic!("{name}: {found}"))
            .clone()
    };
    let area = figure("AUC by loss against the pretrained");
    // 1.000, and 0.579 with an interval from 0.452 to 0.684 where this was written; 0.5 is
    // guessing.
    assert!(number(&area["non_private"]["estimate"]) > 0.95, "{area}");
    let (low, high) = (number(&area["run"]["lower"]), number(&area["run"]["upper"]));
    assert!(low <= 0.51 && high < 0.75, "{area}");
    // Six digits have 19.9 bits, and all of them were found. In private they are as hidden as from
    // a model that never saw them: 2.3 bits beside 1.5.
    let bits = figure("exposure");
    assert!(number(&bits["non_private"]["estimate"]) > 18.0, "{bits}");
    assert!(number(&bits["run"]["estimate"]) < 4.0, "{bits}");
    assert!(number(&bits["run"]["lower"]) < number(&bits["pretrained"]["upper"]), "{bits}");
    let recall = figure("extraction of names, recall");
    assert!(number(&recall["non_private"]["estimate"]) > 0.2, "{recall}");
    let filled = figure("reconstruction of names");
    assert!(number(&filled["non_private"]["estimate"]) > 0.8, "{filled}");
    assert!(number(&filled["run"]["estimate"]) < 0.3, "{filled}");
    let kept: Value =
        serde_json::from_slice(&fs::read(folder.path().join("private/audit.json")).unwrap())
            .unwrap();
    assert!(kept["all"].is_array() && kept["membership"].is_array());

    let extraction = run(&[
        "audit",
        "extraction",
        "--run",
        &at("open"),
        "--names",
        &at("names.txt"),
        "--kind",
        "person",
        "--texts",
        "8",
        "--tokens",
        "48",
    ]);
    let said = String::from_utf8(extraction).unwrap();
    assert!(said.contains("precision") && said.contains("names"), "{said}");
    let reconstruction = run(&[
        "audit",
        "reconstruction",
        "--run",
        &at("open"),
        "--candidates",
        &at("names.txt"),
        "--names",
        &at("names.txt"),
        "--kind",
        "person",
        "--targets",
        "8",
    ]);
    assert!(String::from_utf8(reconstruction).unwrap().contains("pretrained"));
}
