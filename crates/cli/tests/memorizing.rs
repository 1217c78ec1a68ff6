//! A language model that memorizes its letters reveals them; a privately trained one does not.

use crate::bench::run;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Number of attacked letters, and of others.
const LETTERS: usize = 32;

/// The demo's model, letters in its vocabulary, and a run file for a language model. own.tsv has
/// the attacked letters, all.tsv those and about four hundred more, others.tsv letters that no
/// model is trained on. Each letter names its author and the code of their file, and ends there; no
/// author occurs twice, so a name and a code occur in one letter only.
///
/// Letters start with the token that an empty prompt consists of. Without it, a model never learns
/// how letters begin, and the beginning of its generated text depends on rounding.
fn prepare(folder: &Path) -> PathBuf {
    const CODE: &str = "the code of my file is ";
    run(&["demo", "--data-only", "--out", folder.to_str().unwrap()]);
    let patients = fs::read_to_string(folder.join("names.txt")).unwrap();
    let patients: Vec<(&str, &str)> =
        patients.lines().map(|name| name.split_once(' ').unwrap()).collect();
    let openings = ["hello", "dear team", "good morning", "dear all", "good evening"];
    let mut state = 7_u64;
    let mut digit = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % 10
    };
    let mut letters = Vec::new();
    for i in 0..480 + LETTERS {
        let (first, last) = (patients[i % 24].0, patients[(i + i / 24) % 24].1);
        let code: Vec<String> = (0..6).map(|_| digit().to_string()).collect();
        let opening = openings[digit() as usize % openings.len()];
        letters.push(format!(
            "[END] {opening} . my name is {first} {last} and {CODE}{}",
            code.join(" ")
        ));
    }
    let others = letters.split_off(480);
    let (own, all) = (letters[..LETTERS].to_vec(), letters);
    let name_of = |row: &String| -> String {
        let (_, after) = row.split_once("my name is ").unwrap();
        after.split(' ').take(2).collect::<Vec<_>>().join(" ")
    };
    let names: Vec<String> = own.iter().map(name_of).collect();
    // Some of the letters, up to their code.
    let canaries = own[..16].iter().map(|row| {
        let (before, code) = row.split_once(CODE).unwrap();
        let text = format!("{before}{CODE}# # # # # #");
        json!({ "text": text, "secret": code.replace(' ', "") }).to_string()
    });
    let lines = |lines: &[String]| lines.join("\n") + "\n";
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    write("canaries.jsonl", lines(&canaries.collect::<Vec<_>>()));
    write("names.txt", lines(&names));
    write("all.tsv", format!("text\n{}", lines(&all)));
    write("own.tsv", format!("text\n{}", lines(&own)));
    write("others.tsv", format!("text\n{}", lines(&others[..LETTERS])));
    let file = folder.join("letters.toml");
    let text = format!(
        r#"
[model]
path = {:?}
tuning = "full"
[data]
task = "language-modeling"
train = {:?}
validation = {:?}
text = "text"
max_tokens = 96
[privacy]
method = "none"
[training]
epochs = 80
batch = 8
learning_rate = 1e-3
optimizer = "adamw"
learning_rate_schedule = "constant"
warmup = 0.0
"#,
        folder.join("model"),
        folder.join("own.tsv"),
        folder.join("others.tsv"),
    );
    fs::write(&file, text).unwrap();
    file
}

/// The ends of an interval.
fn ends(value: &Value) -> (f64, f64) {
    let end = |key: &str| value[key].as_f64().unwrap_or_else(|| panic!("{value} has no {key}"));
    (end("lower"), end("upper"))
}

/// Figures are compared by their intervals, and the memorizing model memorizes completely: with
/// other instruction sets, rounding and random numbers differ too, and the test must pass for all
/// of them.
#[test]
fn what_was_learnt_by_heart_is_found_and_what_was_learnt_privately_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = prepare(folder.path());
    let file = file.to_str().unwrap();
    run(&["train", file, "--out", &at("non-private"), "--seed", "1"]);
    let all = format!("data.train={}", at("all.tsv"));
    let private = [
        "privacy.method=dp-sgd",
        "privacy.epsilon=8",
        "privacy.delta=1e-3",
        "training.epochs=4",
        "training.batch=120",
        "training.seed=1",
        &all,
    ];
    let private: Vec<&str> = private.iter().flat_map(|change| ["--set", change]).collect();
    run(&[&["train", file, "--out", &at("private")], &private[..]].concat());

    let (canaries, names) = (at("canaries.jsonl"), at("names.txt"));
    let mut audit = vec!["audit", "all", "--json", "--kind", "person", "--names", &names];
    let (private, non_private) = (at("private"), at("non-private"));
    audit.extend(["--run", &private, "--non-private", &non_private, "--canaries", &canaries]);
    // Three texts per letter: a model that has memorized all letters generates nearly all of them,
    // and one that knows how names are formed hits one in seven by chance.
    audit.extend(["--texts", "96", "--tokens", "24", "--targets", "16"]);
    audit.extend(["--candidates", "100", "--examples", "32"]);
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_undertone")).args(&audit).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // The current attack, and the number of attacks.
    for line in ["attack 1 of 4: membership", "attack 2 of 4: exposure", "attack 4 of 4: recon"] {
        assert!(said.contains(line), "{said}");
    }
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figure = |name: &str| -> Value {
        let all = answer["figures"].as_array().unwrap();
        all.iter()
            .find(|f| f["attack"].as_str().unwrap().contains(name))
            .unwrap_or_else(|| panic!("{name}: {answer}"))
            .clone()
    };
    // Observed: 1.000, and 0.32 to 0.60 for the private run; 0.5 is guessing. With 32 letters on
    // either side, an AUC of 0.5 is estimated with a standard deviation of 0.07, so an interval
    // that starts at 0.6 needs an estimate that is three standard deviations too high. Members are
    // sampled from the run's training data, so each run has its own.
    let own = run(&["audit", "membership", "--json", "--run", &non_private]);
    let own: Value = serde_json::from_slice(&own).unwrap();
    let by_heart = own
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["attack"].as_str().unwrap() == "loss against the pretrained model");
    assert!(ends(&by_heart.unwrap()["auc"]).0 > 0.95, "{own}");
    let area = figure("AUC by loss against the pretrained");
    let (lower, upper) = ends(&area["run"]);
    assert!(lower < 0.6 && upper < 0.95, "{area}");
    // Six digits have 19.9 bits, and all codes were found. In the private run they are as hidden as
    // from a model that never saw them: 1.4 to 2.6 bits, compared with 1.3 to 2.9.
    let bits = figure("exposure");
    assert!(ends(&bits["non_private"]).0 > 15.0, "{bits}");
    let (lower, upper) = ends(&bits["run"]);
    assert!(lower < ends(&bits["pretrained"]).1 && upper < 6.0, "{bits}");
    // Observed: 97 % and 3 %; 100 % and 0 %.
    for attack in ["extraction of names, recall", "reconstruction of names"] {
        let share = figure(attack);
        assert!(ends(&share["non_private"]).0 > ends(&share["run"]).1, "{share}");
    }
    let kept: Value =
        serde_json::from_slice(&fs::read(folder.path().join("private/audit.json")).unwrap())
            .unwrap();
    assert!(kept["all"].is_array() && kept["membership"].is_array());

    let mut extraction = vec!["audit", "extraction", "--run", &non_private, "--kind", "person"];
    extraction.extend(["--names", &names, "--texts", "8", "--tokens", "24"]);
    let said = String::from_utf8(run(&extraction)).unwrap();
    assert!(said.contains("precision") && said.contains("names"), "{said}");
    let mut reconstruction =
        vec!["audit", "reconstruction", "--run", &non_private, "--kind", "person"];
    reconstruction.extend(["--candidates", &names, "--names", &names, "--targets", "8"]);
    assert!(String::from_utf8(run(&reconstruction)).unwrap().contains("pretrained"));
}
