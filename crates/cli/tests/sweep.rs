//! `sweep` as people call it: uninterrupted, killed and resumed, with failing runs, and with
//! invalid input.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use undertone_accounting::ledger::Ledger;

/// Two methods at two budgets with three seeds: twelve runs.
const TWELVE: &str = r#"
base = "run.toml"
metric = "accuracy"
seeds = [1, 2, 3]
baseline = "DP-SGD"
source = "a paper"
set = { "training.epochs" = 6, "compute.checkpoint_every" = 4 }
rows = [
    { label = "DP-SGD", set = { "privacy.method" = "dp-sgd" } },
    { label = "ANADP", set = { "privacy.method" = "anadp" } },
]
columns = [
    { label = "ε = 2", set = { "privacy.epsilon" = 2.0 } },
    { label = "ε = 8", set = { "privacy.epsilon" = 8.0 } },
]
published = { "DP-SGD" = { "ε = 8" = 92.1 } }
"#;

fn sweep(bench: &Bench, text: &str, out: &str, more: &[&str]) -> Command {
    fs::write(bench.path("sweep.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.arg("sweep").arg(bench.path("sweep.toml")).arg("--out").arg(bench.path(out)).args(more);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn summaries(folder: &Path) -> Vec<PathBuf> {
    let runs = fs::read_dir(folder.join("runs")).into_iter().flatten().flatten();
    runs.map(|run| run.path().join("summary.json")).filter(|path| path.exists()).collect()
}

/// Killed in the middle of a run and restarted, a sweep produces the same table as an uninterrupted
/// one.
#[test]
fn a_killed_sweep_makes_the_table_of_an_unbroken_one() {
    let bench = Bench::classifier();
    let whole = sweep(&bench, TWELVE, "whole", &["--jobs", "1"]).output().unwrap();
    assert!(whole.status.success(), "{}", said(&whole));
    let text = said(&whole);
    assert!(text.contains("Not private: the seeds") && text.contains("over 3 seeds"), "{text}");
    assert!(text.contains("(92.1)") && text.contains("as published (a paper)"), "{text}");
    let mut killed = sweep(&bench, TWELVE, "killed", &["--jobs", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let runs = || fs::read_dir(bench.path("killed/runs")).into_iter().flatten().flatten();
    let under_way = || {
        runs().any(|run| {
            let metrics = fs::read_to_string(run.path().join("metrics.jsonl")).unwrap_or_default();
            metrics.lines().count() > 8 && !run.path().join("summary.json").exists()
        })
    };
    let start = Instant::now();
    while !(summaries(&bench.path("killed")).len() >= 4 && under_way()) {
        assert!(start.elapsed() < Duration::from_secs(120) && killed.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(1));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let before = summaries(&bench.path("killed"));
    assert!((4..12).contains(&before.len()), "{} runs had finished", before.len());
    let written = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let times: Vec<_> = before.iter().map(written).collect();
    let resumed = sweep(&bench, TWELVE, "killed", &["--jobs", "1"]).output().unwrap();
    assert!(resumed.status.success(), "{}", said(&resumed));
    for file in ["table.csv", "table.md", "table.tex", "table.txt", "plot.svg"] {
        let of = |out: &str| String::from_utf8(bench.bytes(&format!("{out}/{file}"))).unwrap();
        assert_eq!(of("killed"), of("whole"), "{file}");
    }
    assert_eq!(before.iter().map(written).collect::<Vec<_>>(), times, "what was finished is kept");
    assert_eq!(summaries(&bench.path("killed")).len(), 12);
    // Weights are large, and were not requested.
    assert!(runs().all(|run| !run.path().join("model").exists()));
    let csv = String::from_utf8(bench.bytes("whole/table.csv")).unwrap();
    let line = csv.lines().find(|line| line.starts_with("ANADP,ε = 8")).unwrap();
    assert_eq!(line.split(',').next_back().unwrap().split(' ').count(), 3, "{line}");
}

/// Every run is attacked the number of times set by the sweep, all trials are kept, and the table
/// has their mean. Nothing is repeated; with other attacks, the runs are repeated because their
/// weights have been removed.
#[test]
fn a_sweep_attacks_its_runs_and_tabulates_the_attacks() {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-wordpiece", "task = \"language-modeling\"");
    fs::write(bench.path("names.txt"), "cat the\ndog warm\n").unwrap();
    let text = |trials: usize| {
        format!(
            "base = \"run.toml\"\nmetric = \"membership-auc\"\nalso = [\"extraction-precision\", \
             \"extraction-recall\", \"reconstruction-accuracy\"]\nseeds = [4]\nset = \
             {{ \"training.epochs\" = 1 }}\nrows = [{{ label = \"non-private\", set = \
             {{ \"privacy.method\" = \"none\" }} }}, {{ label = \"DP\" }}]\npublished = {{ DP = \
             {{ \"reconstruction accuracy, %\" = 0.2 }} }}\n[audit]\nattacks = [\"extraction\", \
             \"reconstruction\", \"membership\"]\ntrials = {trials}\nkinds = [\"person\"]\nnames = \
             {:?}\ntexts = 6\ntokens = 8\ntargets = 4\nsamples = 3\nexamples = 50\n",
            bench.path("names.txt")
        )
    };
    let run = |trials: usize| -> Value {
        let output =
            sweep(&bench, &text(trials), "out", &["--jobs", "1", "--json"]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let table = run(2);
    assert_eq!(table["columns"].as_array().unwrap().len(), 4, "{table}");
    assert_eq!(table["rows"][1]["cells"][3]["published"], 0.2, "{table}");
    let folder = bench.path("out/runs/dp--membership-auc--seed-4");
    let kept = || -> Value {
        serde_json::from_slice(&fs::read(folder.join("audit.json")).unwrap()).unwrap()
    };
    let trials = kept()["trials"].clone();
    for (attack, figure) in [("membership", 0), ("extraction", 2), ("reconstruction", 3)] {
        let all = trials[attack].as_array().unwrap();
        assert_eq!((all.len(), &all[0]["seed"], &all[1]["seed"]), (2, &1.into(), &2.into()));
        assert_eq!(kept()[attack], all[0]["found"], "{attack}: the first trial");
        let of = |trial: &Value| {
            let figures = &trial["found"][0];
            let figure = match attack {
                "membership" => &figures["auc"],
                "extraction" => &figures["recall"],
                _ => &figures["not_known_before"]["top_1"],
            };
            figure["estimate"].as_f64().unwrap()
        };
        let mean = 100.0 * (of(&all[0]) + of(&all[1])) / 2.0;
        let shown = table["rows"][1]["cells"][figure]["mean"].as_f64().unwrap();
        assert!((shown - mean).abs() < 1e-9, "{attack}: {shown}, not {mean}");
    }
    assert!(!folder.join("model").exists(), "weights are gone after the attacks");
    let written = || fs::metadata(folder.join("audit.json")).unwrap().modified().unwrap();
    let before = written();
    assert_eq!(run(2)["rows"], table["rows"]);
    assert_eq!(written(), before, "no attack is made twice");
    run(3);
    assert_eq!(kept()["trials"]["membership"].as_array().unwrap().len(), 3);
}

/// Several runs at a time, as a grid, on part of the data; a changed sweep repeats only what has
/// changed.
#[test]
fn a_grid_runs_in_parallel_on_part_of_the_data() {
    let bench = Bench::classifier();
    let grid = "base = \"run.toml\"\nmetric = \"loss\"\nseeds = [1, 2]\nbaseline = \
                \"dp-sgd\"\nexamples = 80\nvalidation_examples = 40\nkeep_weights = true\n\
                [grid]\n\"privacy.method\" = [\"dp-sgd\", \"adaclip\"]\n\"privacy.epsilon\" = [4, \
                 8.0]\n";
    let output = sweep(&bench, grid, "out", &["--jobs", "3", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let table: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(table["columns"], serde_json::json!(["ε = 4", "ε = 8.0"]));
    let row = &table["rows"][1];
    assert_eq!(
        (row["label"].as_str(), row["cells"].as_array().unwrap().len()),
        (Some("adaclip"), 2)
    );
    assert!(
        row["cells"][0]["p_value"].is_number() && row["cells"][0]["mean"].is_number(),
        "{table}"
    );
    for summary in summaries(&bench.path("out")) {
        let private = summary.parent().unwrap().join("private/summary.json");
        let [shared, private] = [summary, private]
            .map(|path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() });
        assert_eq!(shared["resolved"]["units"], 80);
        assert_eq!(private["metrics"]["validation"]["examples"], 40);
    }
    let kept = fs::read_dir(bench.path("out/runs")).unwrap().flatten();
    assert_eq!(kept.filter(|run| run.path().join("model").exists()).count(), 8);
    let changed = grid.replace("adaclip", "anadp");
    let output = sweep(&bench, &changed, "out", &[]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(summaries(&bench.path("out")).len(), 12, "four new runs beside the others");
    let output = sweep(&bench, &changed, "out", &["--set", "training.epochs=1"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let done = said(&output);
    assert!(done.contains("anadp") && summaries(&bench.path("out")).len() == 12, "{done}");
}

#[test]
fn a_run_that_fails_does_not_stop_the_others() {
    let bench = Bench::classifier();
    let text = TWELVE.replace(
        "{ label = \"ANADP\", set = { \"privacy.method\" = \"anadp\" } }",
        "{ label = \"nothing\", set = { \"model.path\" = \"./nowhere\" }, only = [\"ε = 8\"] }",
    );
    let output = sweep(&bench, &text, "out", &["--set", "training.epochs=1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let printed = said(&output);
    assert!(
        printed.contains("3 of 9 runs failed")
            && printed.contains("Failed: nothing, ε = 8, seed 1: "),
        "{printed}"
    );
    assert!(printed.contains("nowhere") && !printed.contains("panicked"), "{printed}");
    assert_eq!(summaries(&bench.path("out")).len(), 6);
    assert!(
        String::from_utf8(bench.bytes("out/table.md")).unwrap().contains("| nothing |  | failed |")
    );
}

/// Without seeds, runs are private, and no ledger is discarded.
#[test]
fn private_runs_are_never_thrown_away() {
    let bench = Bench::classifier();
    let text = TWELVE.replace("seeds = [1, 2, 3]\n", "");
    let more = ["--set", "training.epochs=1"];
    let output = sweep(&bench, &text, "out", &more).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let printed = said(&output);
    assert!(
        printed.contains("4 runs on the same data") && !printed.contains("Not private"),
        "{printed}"
    );
    // Their total cost, according to their ledgers.
    let ledgers: Vec<Ledger> = summaries(&bench.path("out"))
        .iter()
        .map(|path| Ledger::read(path.with_file_name("ledger.jsonl")).unwrap())
        .collect();
    let total = Ledger::together(&ledgers.iter().collect::<Vec<_>>(), 1e-3).unwrap();
    assert!(printed.contains(&format!("have together {total}")), "{printed}");
    assert!(summaries(&bench.path("out")).iter().all(|path| {
        let summary: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        summary["private"] == true
    }));
    let other = sweep(&bench, &text, "out", &["--set", "training.epochs=2"]).output().unwrap();
    refused(&other, "private run of another plan");
}

#[test]
fn mistakes_are_one_sentence_and_nothing_runs() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    for (from, to, about) in [
        ("\"privacy.epsilon\" = 2.0", "\"privacy.epsilom\" = 2.0", "epsilom"),
        ("\"privacy.epsilon\" = 2.0", "\"privacy.epsilon\" = \"two\"", "ε = 2"),
        ("\"privacy.method\" = \"anadp\"", "\"privacy.method\" = \"rap-ft\"", "ANADP, ε = 2: "),
        ("metric = \"accuracy\"", "metric = \"perplexity\"", "perplexity"),
        ("metric = \"accuracy\"", "metric = \"beauty\"", "beauty"),
        ("base = \"run.toml\"", "base = \"nowhere.toml\"", "nowhere.toml"),
        ("baseline = \"DP-SGD\"", "baseline = \"SGD\"", "baseline"),
        ("seeds = [1, 2, 3]", "seeds = [1, 2, 3]\nexamples = 500", "120 rows"),
        ("seeds = [1, 2, 3]", "seeds = [1, 2, 3]\nshare = 1.5", "share is 1.5"),
        ("seeds = [1, 2, 3]", "seeds = [1, 2, 3]\nshare = 0.5\nexamples = 9", "either share or"),
        // In a private run, an additional row would displace another.
        ("seeds = [1, 2, 3]\nbaseline = \"DP-SGD\"", "examples = 60", "use share instead"),
    ] {
        assert!(TWELVE.contains(from));
        let output = sweep(&bench, &TWELVE.replacen(from, to, 1), "out", &[]).output().unwrap();
        refused(&output, about);
        assert_eq!(
            String::from_utf8_lossy(&output.stderr).trim().lines().count(),
            1,
            "{}",
            said(&output)
        );
        assert!(summaries(&bench.path("out")).is_empty());
    }
    let missing = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["sweep", "nowhere.toml"])
        .output()
        .unwrap();
    refused(&missing, "nowhere.toml");
    sentences.assert("sweep");
}

#[test]
fn two_sweeps_in_one_folder_are_refused() {
    let bench = Bench::classifier();
    let mut first = sweep(&bench, TWELVE, "out", &["--set", "training.epochs=200"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !bench.path("out/runs/dp-sgd--epsilon-2--seed-1/metrics.jsonl").exists() {
        assert!(start.elapsed() < Duration::from_secs(60) && first.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = sweep(&bench, TWELVE, "out", &[]).output().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    refused(&second, "in use by another sweep");
}

/// Additional metrics and the average have their own columns.
#[test]
fn a_table_can_have_a_second_metric_and_an_average() {
    let bench = Bench::classifier();
    let text = r#"
base = "run.toml"
metric = "accuracy"
also = ["accuracy-with-noise", "best-accuracy"]
average = "Avg."
losses = true
noise = true
seeds = [1]
set = { "training.epochs" = 1 }
rows = [
    { label = "DP-Forward", set = { "privacy.method" = "dp-forward" } },
    { label = "non-private", set = { "privacy.method" = "none" }, unset = ["privacy.epsilon"], reference = true },
    { label = "ANADP", set = { "privacy.method" = "anadp", "privacy.mode" = "paper" }, only = ["two"] },
]
columns = [
    { label = "one" },
    { label = "two", set = { "training.learning_rate" = 1e-4 } },
]
"#;
    let output = sweep(&bench, text, "out", &["--jobs", "1", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let table: Value = serde_json::from_slice(&output.stdout).unwrap();
    let columns = [
        "one",
        "two",
        "Avg.",
        "one, accuracy with noise",
        "two, accuracy with noise",
        "one, accuracy of the best epoch",
        "two, accuracy of the best epoch",
    ];
    assert_eq!(table["columns"], serde_json::json!(columns));
    let cell = |row: usize, column: usize| &table["rows"][row]["cells"][column];
    let mean = |row: usize, column: usize| cell(row, column)["mean"].as_f64().unwrap();
    for row in 0..2 {
        assert!((mean(row, 2) - 0.5 * (mean(row, 0) + mean(row, 1))).abs() < 1e-9);
        // With a single epoch, the best epoch is the last.
        assert_eq!(mean(row, 5), mean(row, 0));
    }
    assert!(mean(0, 3) > 0.0 && cell(1, 3).is_null(), "non-private runs have no noise");
    assert!(table["failures"].as_array().unwrap().is_empty(), "{table}");
    assert!(table["notes"].to_string().contains("the choice is a release"), "{table}");
    let drawn = fs::read_to_string(bench.path("out/losses.svg")).unwrap();
    assert!(drawn.contains("DP-Forward, one") && drawn.contains("non-private, two"));
    // Only ANADP has different noise for different parameters.
    let drawn = fs::read_to_string(bench.path("out/noise-anadp--two.svg")).unwrap();
    assert!(drawn.contains("Noise during training"), "{drawn}");
    assert!(!bench.path("out/noise-dp-forward--two.svg").exists());
}

/// Two shares, started by a launcher and gathered, produce the table of a single sweep.
#[test]
fn shares_of_a_sweep_make_its_table() {
    let bench = Bench::classifier();
    let four = r#"
base = "run.toml"
metric = "accuracy"
seeds = [1, 2]
set = { "training.epochs" = 1 }
columns = [
    { label = "ε = 2", set = { "privacy.epsilon" = 2.0 } },
    { label = "ε = 8", set = { "privacy.epsilon" = 8.0 } },
]
"#;
    let run = |out: &str, more: &[&str]| {
        let mut command = sweep(&bench, four, out, more);
        command.env("RAYON_NUM_THREADS", "1").output().unwrap()
    };
    let whole = run("whole", &["--jobs", "1"]);
    assert!(whole.status.success(), "{}", said(&whole));
    let listed = run("shared", &["--list", "--shard", "2/3"]);
    assert!(said(&listed).contains("1 runs"), "{}", said(&listed));
    let first = run("shared", &["--shard", "1/2", "--launcher", "env UNDERTONE_LAUNCHED=1"]);
    assert!(first.status.success(), "{}", said(&first));
    assert_eq!(summaries(&bench.path("shared")).len(), 2);
    assert!(!bench.path("shared/table.txt").exists());
    // Missing runs are reported, and nothing is run.
    let half = run("shared", &["--gather"]);
    assert!(half.status.success() && said(&half).contains("2 of 4 runs are not in the table"));
    assert_eq!(summaries(&bench.path("shared")).len(), 2);
    let second = run("shared", &["--shard", "2/2"]);
    assert!(second.status.success(), "{}", said(&second));
    let gathered = run("shared", &["--gather"]);
    assert!(gathered.status.success(), "{}", said(&gathered));
    for file in ["table.csv", "table.md"] {
        assert_eq!(bench.bytes(&format!("shared/{file}")), bench.bytes(&format!("whole/{file}")));
    }
    refused(&run("shared", &["--shard", "3/2"]), "the third of eight");
    refused(&run("shared", &["--launcher", " "]), "--launcher is empty");
    let lost = run("lost", &["--shard", "1/4", "--launcher", "no-such-launcher -n1"]);
    assert_eq!(lost.status.code(), Some(1));
    assert!(said(&lost).contains("no-such-launcher cannot be started"), "{}", said(&lost));
}
