//! Private selection: the best of a random number of runs.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

const SELECTION: &str = r#"
base = "run.toml"
metric = "accuracy"
set = { "training.epochs" = 1 }
[grid]
"training.learning_rate" = [1e-4, 1e-2]
"training.batch" = [20, 40]
[selection]
runs = { negative_binomial = { eta = 0.0, gamma = 0.2 } }
validation = "public"
"#;

/// Selects by public.tsv instead of the bench's validation file, which is the training file.
fn select(bench: &Bench, text: &str, out: &str, more: &[&str]) -> Output {
    let public = bench.public();
    let here = format!("\"data.validation\" = {public:?}, \"training.epochs\"");
    select_by(bench, &text.replace("\"training.epochs\"", &here), out, more)
}

fn select_by(bench: &Bench, text: &str, out: &str, more: &[&str]) -> Output {
    fs::write(bench.path("sweep.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.arg("sweep").arg(bench.path("sweep.toml")).arg("--private-selection");
    command.arg("--out").arg(bench.path(out)).args(["--jobs", "1"]).args(more).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// One model, one ledger, one guarantee that is larger than a single run's, and nothing that
/// reveals the number of runs.
#[test]
fn only_the_best_run_is_left_with_the_cost_of_all() {
    let bench = Bench::classifier();
    let listed = select(&bench, SELECTION, "out", &["--list"]);
    assert!(said(&listed).contains("among 4 settings with about 2.5 runs costs ε ≤"));
    assert!(!bench.path("out").exists(), "nothing ran");
    let output = select(&bench, SELECTION, "out", &["--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let selected: Value = serde_json::from_slice(&output.stdout).unwrap();
    let epsilon = selected["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(epsilon > 8.0 && epsilon < 40.0, "{epsilon}");
    assert!(selected["score"].as_f64().is_some() && selected["candidates"][3].is_string());
    let assumed = selected["guarantee"]["assumptions"].to_string();
    assert!(
        assumed.contains("public.tsv, by which the best run was selected, is public"),
        "{assumed}"
    );
    assert!(assumed.contains("not the number of runs"), "{assumed}");
    let mut left: Vec<String> = fs::read_dir(bench.path("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let expected =
        ["ledger.jsonl", "ledger.jsonl.head", "selected", "selection.json", "sweep.lock"];
    assert_eq!(left, expected);
    crate::shareable::assert_selection_is_listed(&bench.path("out"));
    // The model works, and its card states the guarantee of the selection.
    let model = bench.path("out/selected/model");
    let card = fs::read_to_string(model.join("README.md")).unwrap();
    let hash = selected["ledger_hash"].as_str().unwrap();
    assert!(card.contains(hash) && card.contains("by which the best run was selected"), "{card}");
    let eval = run(&[
        "eval",
        "--model",
        model.to_str().unwrap(),
        "--data",
        bench.path("rows.tsv").to_str().unwrap(),
        "--json",
    ]);
    let eval: Value = serde_json::from_slice(&eval).unwrap();
    let score = selected["score"].as_f64().unwrap();
    assert!((100.0 * eval["accuracy"].as_f64().unwrap() - score).abs() < 1e-9);
    // The ledger alone states the same.
    let ledger = bench.path("out/ledger.jsonl");
    let printed = run(&["budget", "ledger", ledger.to_str().unwrap(), "--delta", "1e-3", "--json"]);
    let printed: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(printed["guarantee"]["epsilon"], selected["guarantee"]["epsilon"]);
    assert_eq!((&printed["entries"], printed["hash"].as_str()), (&1.into(), Some(hash)));
    // Running it again: the selection is finished, and nothing is drawn again.
    let again = select(&bench, SELECTION, "out", &["--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&again.stdout).unwrap(), selected);
}

/// An interrupted selection resumes with its draw; another sweep cannot replace it.
#[test]
fn a_selection_is_not_drawn_twice() {
    let bench = Bench::classifier();
    let broken = SELECTION.replace("[grid]", "[grid]\n\"model.path\" = [\"./nowhere\"]");
    let text = SELECTION.replace("eta = 0.0, gamma = 0.2", "eta = 20.0, gamma = 0.9");
    let output = select(&bench, &broken, "nowhere", &[]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    // With a file in place of the first run's folder, the run fails, nothing is selected, and the
    // draw remains.
    let out = bench.path("out");
    fs::create_dir_all(out.join("runs")).unwrap();
    fs::write(out.join("sweep.lock"), "").unwrap();
    fs::write(out.join("runs/run-0"), "").unwrap();
    let output = select(&bench, &text, "out", &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("nothing was selected"), "{}", said(&output));
    let draw = fs::read_to_string(out.join("draw.json")).unwrap();
    let other = text.replace("1e-2", "2e-2");
    refused(&select(&bench, &other, "out", &[]), "belongs to another sweep");
    assert_eq!(fs::read_to_string(out.join("draw.json")).unwrap(), draw);
    fs::remove_file(out.join("runs/run-0")).unwrap();
    let output = select(&bench, &text, "out", &[]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(!out.join("draw.json").exists() && out.join("selected/model").is_dir());
    let ledger = fs::read_to_string(out.join("ledger.jsonl")).unwrap();
    assert_eq!(ledger.lines().count(), 2, "one entry, for both starts");
}

/// A finished selection states its guarantee only while its ledger proves it for the weights in the
/// folder, and is never redrawn in its folder.
#[test]
fn a_finished_selection_is_verified_each_time() {
    let bench = Bench::classifier();
    // Almost certainly at least one run.
    let text = SELECTION.replace("eta = 0.0, gamma = 0.2", "eta = 20.0, gamma = 0.9");
    let output = select(&bench, &text, "out", &["--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let again = |about: Option<&str>| {
        let output = select(&bench, &text, "out", &["--json"]);
        match about {
            Some(about) => {
                refused(&output, about);
                assert!(!said(&output).contains("epsilon"), "{}", said(&output));
            }
            None => assert!(output.status.success(), "{}", said(&output)),
        }
    };
    let with = |file: &str, change: &dyn Fn(&[u8]) -> Option<Vec<u8>>, about: &str| {
        let (path, whole) = (bench.path("out").join(file), bench.bytes(&format!("out/{file}")));
        match change(&whole) {
            Some(changed) => fs::write(&path, changed).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        again(Some(about));
        fs::write(&path, whole).unwrap();
    };
    let cut = |bytes: &[u8]| Some(bytes[..bytes.len() / 2].to_vec());
    let flip = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        Some(bytes)
    };
    let nobody = |_: &[u8]| None;
    with("ledger.jsonl", &nobody, "ledger.jsonl");
    with("ledger.jsonl", &cut, "ledger.jsonl");
    with("ledger.jsonl.head", &nobody, "head");
    with("selected/model/model.safetensors", &flip, "contains other weights");
    with("selected/model/model.safetensors", &nobody, "holds no weights");
    with("selection.json", &nobody, "selection.json is missing");
    with(
        "selection.json",
        &|text| {
            let mut outcome: Value = serde_json::from_slice(text).unwrap();
            outcome["guarantee"]["epsilon"]["upper"] = 0.5.into();
            Some(outcome.to_string().into_bytes())
        },
        "states another guarantee",
    );
    again(None);
    // The owner may edit the card.
    fs::write(bench.path("out/selected/model/README.md"), "licensed\n").unwrap();
    again(None);
}

#[test]
fn selections_that_prove_nothing_are_refused() {
    let bench = Bench::classifier();
    let by_itself = select_by(&bench, SELECTION, "out", &[]);
    refused(&by_itself, "data.validation is the private training file");
    // Runs of a sweep without selection have ledgers that count.
    fs::create_dir_all(bench.path("swept/runs/accuracy")).unwrap();
    fs::write(bench.path("swept/sweep.lock"), "").unwrap();
    refused(&select(&bench, SELECTION, "swept", &[]), "without selection");
    for (from, to, about) in [
        ("validation = \"public\"\n", "", "must be public"),
        ("metric = \"accuracy\"", "metric = \"accuracy\"\nseeds = [1]", "seeds cannot be used"),
        ("metric = \"accuracy\"", "metric = \"accuracy\"\nexamples = 60", "use share instead"),
        (
            "metric = \"accuracy\"",
            "metric = \"memory\"",
            "the metric accuracy, f1, loss or perplexity",
        ),
        ("eta = 0.0", "eta = -1.5", "η of the number of runs"),
        ("\"training.batch\" = [20, 40]", "\"privacy.delta\" = [1e-3, 1e-4]", "the same delta"),
        ("\"training.batch\" = [20, 40]", "\"data.max_tokens\" = [8, 16]", "the same [data]"),
        ("[grid]", "[grid]\n\"privacy.method\" = [\"dp-sgd\", \"none\"]", "central DP"),
        ("[grid]", "[grid]\n\"training.seed\" = [4]", "private runs"),
    ] {
        assert!(SELECTION.contains(from), "{from}");
        let output = select(&bench, &SELECTION.replacen(from, to, 1), "out", &[]);
        refused(&output, about);
        assert!(!bench.path("out").exists(), "{to}");
    }
    let without = &SELECTION[..SELECTION.find("[selection]").unwrap()];
    refused(&select(&bench, without, "out", &[]), "needs [selection]");
    // Without the flag, such a file would release all runs.
    fs::write(bench.path("sweep.toml"), SELECTION).unwrap();
    let plain = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .arg("sweep")
        .arg(bench.path("sweep.toml"))
        .arg("--out")
        .arg(bench.path("plain"))
        .output()
        .unwrap();
    refused(&plain, "add --private-selection");
}

/// The calculator, compared with the ledger's formula.
#[test]
fn the_budget_of_a_selection_is_computed() {
    let of = |more: &[&str]| -> Value {
        let common =
            ["budget", "selection", "--noise-multiplier", "1.5", "--sampling-rate", "0.0152"];
        let steps = ["--steps", "650", "--delta", "1e-5", "--json"];
        serde_json::from_slice(&run(&[&common[..], &steps, more].concat())).unwrap()
    };
    let geometric = of(&[]);
    let single = geometric["epsilon_of_one_run"]["upper"].as_f64().unwrap();
    let whole = |value: &Value| value["epsilon"]["upper"].as_f64().unwrap();
    assert!((geometric["mean_runs"].as_f64().unwrap() - 10.0).abs() < 1e-9);
    assert!(whole(&geometric) > single && whole(&geometric) < 4.0 * single, "{geometric}");
    assert_eq!(
        (geometric["accountant"].as_str(), &geometric["certified"]),
        (Some("rdp"), &true.into())
    );
    // A smaller η costs less at the same γ.
    assert!(whole(&of(&["--eta", "0"])) < whole(&geometric));
    assert!(whole(&of(&["--poisson", "10"])) > single);
    let refuse = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["budget", "selection", "--noise-multiplier", "1.5", "--delta", "1e-5"])
        .output()
        .unwrap();
    refused(&refuse, "say how the data are sampled");
}
