//! A first run from data, model and ε alone: the recipe's choices, runs without a run file, dry
//! runs and `init`.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

/// The program in the bench's folder, without a terminal.
fn undertone(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.current_dir(bench.folder.path()).args(arguments).args(["--device", "cpu"]);
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeds(bench: &Bench, arguments: &[&str]) -> Output {
    let output = undertone(bench, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output
}

const FLAGS: [&str; 12] = [
    "train",
    "--model",
    "./model",
    "--data",
    "rows.tsv",
    "--text",
    "sentence",
    "--label",
    "label",
    "--labels",
    "bad,neutral,good",
    "--json",
];

fn run_file(more: &str) -> String {
    format!(
        "[model]\npath = \"model\"\n[data]\ntask = \"classification\"\ntrain = \
         \"rows.tsv\"\ntext = \"sentence\"\nmax_tokens = 16\n{more}"
    )
}

#[test]
fn data_model_and_budget_are_enough_and_the_plan_repeats_the_run() {
    let bench = Bench::classifier();
    let said = succeeds(&bench, &[&FLAGS[..], &["--epsilon", "8", "--seed", "3"]].concat());
    let line = text(&said.stderr);
    for chosen in ["chosen by the recipe: LoRA of rank 8", "δ = 1e-5", "batch 16", "runs/first"] {
        assert!(line.contains(chosen), "{line}");
    }
    let summary: Value = serde_json::from_slice(&said.stdout).unwrap();
    let training = &summary["plan"]["training"];
    assert_eq!(training["optimizer"], "adam-corrected");
    assert_eq!(
        (&training["batch"], &summary["plan"]["privacy"]["delta"]),
        (&16.into(), &1e-5.into())
    );
    let upper = summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(upper <= 8.0 && upper > 7.9, "{upper}");
    // plan.toml states every choice, so it reproduces the run; nothing is chosen again.
    let plan = fs::read_to_string(bench.path("runs/first/plan.toml")).unwrap();
    for key in ["batch = 16", "delta = ", "clip", "optimizer = \"adam-corrected\"", "warmup = "] {
        assert!(plan.contains(key), "{key}: {plan}");
    }
    let again = succeeds(&bench, &["train", "runs/first/plan.toml", "--out", "again"]);
    assert!(!text(&again.stderr).contains("chosen by the recipe"));
    let weights = "adapter/adapter_model.safetensors";
    bench.assert_same_runs("runs/first", "again", weights);
    // A second run without --out gets its own folder, and a different budget gets different noise.
    let second = [&FLAGS[..], &["--epsilon", "2", "--seed", "3"]].concat();
    succeeds(&bench, &second);
    assert!(
        bench.bytes(&format!("runs/first-2/{weights}")) != bench.bytes(&format!("again/{weights}"))
    );
}

#[test]
fn auto_is_what_is_left_out_and_explicit_keys_are_kept() {
    let bench = Bench::classifier();
    let budget = "[privacy]\nepsilon = 8.0\n";
    let auto = "clip = \"auto\"\n[training]\nbatch = \"auto\"\nepochs = 1\noptimizer = \"adamw\"\n";
    fs::write(bench.path("short.toml"), run_file(budget)).unwrap();
    fs::write(bench.path("auto.toml"), run_file(&format!("{budget}{auto}"))).unwrap();
    let automatic = ["train", "auto.toml", "--out", "one", "--seed", "1"];
    succeeds(&bench, &automatic);
    let set = ["--set", "training.epochs=1", "--set", "training.optimizer=adamw"];
    succeeds(
        &bench,
        &[&["train", "short.toml", "--out", "other", "--seed", "1"][..], &set].concat(),
    );
    bench.assert_same_runs("one", "other", "adapter/adapter_model.safetensors");
    let plan = fs::read_to_string(bench.path("one/plan.toml")).unwrap();
    assert!(plan.contains("epochs = 1\n") && plan.contains("optimizer = \"adamw\""), "{plan}");
}

#[test]
fn a_run_is_resumed_with_what_the_recipe_chose_for_it() {
    let bench = Bench::classifier();
    fs::write(bench.path("run.toml"), run_file("[privacy]\nepsilon = 8.0\n")).unwrap();
    let settings = ["--seed", "1", "--set", "compute.checkpoint_every=3", "--device", "cpu"];
    // Paths in the run file are relative to the folder.
    let file = fs::read_to_string(bench.path("run.toml")).unwrap();
    let absolute = file
        .replace("\"model\"", &format!("{:?}", bench.path("model")))
        .replace("\"rows.tsv\"", &format!("{:?}", bench.path("rows.tsv")));
    fs::write(bench.path("run.toml"), absolute).unwrap();
    succeeds(&bench, &[&["train", "run.toml", "--out", "whole"][..], &settings[..4]].concat());
    if bench.kill_after("run", &settings, 5) {
        let plan = fs::read_to_string(bench.path("run/plan.toml")).unwrap();
        succeeds(&bench, &["train", "run.toml", "--out", "run", "--resume", "--set", settings[3]]);
        assert_eq!(fs::read_to_string(bench.path("run/plan.toml")).unwrap(), plan);
    }
    bench.assert_same_runs("run", "whole", "adapter/adapter_model.safetensors");
}

#[test]
fn a_method_without_noise_needs_no_budget() {
    let bench = Bench::classifier();
    let set = ["--set", "privacy.method=none", "--set", "training.epochs=1"];
    let out = ["train", "run.toml", "--out", "none", "--json"];
    let said = succeeds(&bench, &[&out[..], &set].concat());
    let printed = text(&said.stderr);
    assert!(printed.contains("omitted"), "{printed}");
    for key in ["privacy.epsilon", "privacy.delta", "privacy.clip"] {
        assert!(printed.contains(key), "{printed}");
    }
    let summary: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(summary["private"], false);
    assert!(summary["plan"]["privacy"]["epsilon"].is_null());
}

#[test]
fn a_dry_run_writes_and_releases_nothing() {
    let bench = Bench::classifier();
    fs::write(bench.path("run.toml"), run_file("[privacy]\nepsilon = 8.0\n")).unwrap();
    let files = || {
        let mut names: Vec<_> = fs::read_dir(bench.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let before = files();
    let said = succeeds(&bench, &["train", "run.toml", "--dry-run", "--json"]);
    let answer: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!((&answer["steps"], &answer["rows"]), (&154.into(), &120.into()));
    let [short, long] = [0, 1].map(|i| &answer["steps_timed"][i]["tokens"]);
    assert!(short.as_u64().unwrap() < long.as_u64().unwrap(), "{answer}");
    assert!(answer["seconds"][0].as_f64().unwrap() > 0.0);
    assert_eq!(answer["resolved"]["noise_multipliers"].as_array().unwrap().len(), 22);
    assert!(answer["chosen"].as_array().unwrap().contains(&"training.batch".into()));
    let said = succeeds(&bench, &["train", "run.toml", "--dry-run"]);
    let printed = text(&said.stdout);
    for word in ["noise multiplier", "16 (recipe)", "if all texts", "nothing was released"] {
        assert!(printed.contains(word), "{printed}");
    }
    assert_eq!(files(), before);
    // The noise equals that of the run.
    succeeds(&bench, &["train", "run.toml", "--out", "run"]);
    let plan = fs::read_to_string(bench.path("run/plan.toml")).unwrap();
    let noise = answer["resolved"]["noise_multipliers"][0].as_f64().unwrap();
    assert!(plan.contains(&noise.to_string()), "{noise}: {plan}");
    // Methods and tasks of all kinds.
    let run = Bench::classifier();
    for changes in [
        &["privacy.method=anadp"][..],
        &["privacy.method=adaclip"],
        &["privacy.method=rap-ft", "model.tuning=bitfit"],
        &["privacy.method=none"],
        &["privacy.method=dp-forward", "model.tuning=head"],
        &["data.author=who"],
    ] {
        let set = changes.iter().flat_map(|change| ["--set", change]);
        let words: Vec<&str> = ["train", "run.toml", "--dry-run"].into_iter().chain(set).collect();
        succeeds(&run, &words);
    }
    let lm = Bench::new("gpt2-causal-lm", "tokenizer-bpe", "task = \"language-modeling\"");
    succeeds(&lm, &["train", "run.toml", "--dry-run"]);
}

#[test]
fn init_writes_a_run_file_that_trains() {
    let bench = Bench::classifier();
    let init = ["init", "rows.tsv", "--model", "./model", "--epsilon", "4", "--out", "new.toml"];
    let said = succeeds(&bench, &init);
    let printed = text(&said.stdout);
    for word in ["sentence, label, who", "40 units", "ε = 4, δ = 1e-5", "undertone train new.toml"]
    {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    // Nothing from the rows is printed or written: no word, no label, no author.
    let file = fs::read_to_string(bench.path("new.toml")).unwrap();
    for private in ["bad", "good", "person", "dog", "today"] {
        assert!(
            !printed.contains(private) && !file.contains(private),
            "{private}: {printed}{file}"
        );
        assert!(!text(&said.stderr).contains(private));
    }
    assert!(file.contains("author = \"who\"") && file.contains("task = \"classification\""));
    assert_eq!(undertone(&bench, &init).status.code(), Some(2), "it exists");
    succeeds(&bench, &[&init[..], &["--force"]].concat());
    let dry = succeeds(&bench, &["train", "new.toml", "--dry-run", "--json"]);
    let answer: Value = serde_json::from_slice(&dry.stdout).unwrap();
    assert_eq!(answer["chosen"], Value::Array(Vec::new()), "the file states every setting");
    let run = succeeds(&bench, &["train", "new.toml", "--out", "run", "--json"]);
    let summary: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(summary["guarantee"]["unit"], "user");
    // With the user's consent the labels are written.
    let labels = ["--read-labels", "--no-author", "--json", "--force"];
    let far = ["init", "rows.tsv", "--model", "nobody/no-such-model", "--out", "new.toml"];
    let said = succeeds(&bench, &[&far[..], &labels].concat());
    let answer: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(answer["units"], 120);
    let file = fs::read_to_string(bench.path("new.toml")).unwrap();
    assert!(file.contains("labels = [\"bad\", \"good\"]"), "{file}");
}

#[test]
fn init_knows_tasks_by_their_columns_and_asks_for_what_is_not_clear() {
    let bench = Bench::new("gpt2-causal-lm", "tokenizer-bpe", "task = \"language-modeling\"");
    let pairs: String =
        (0..40).map(|i| format!("{{\"prompt\": \"{i}\", \"completion\": \"a b\"}}\n")).collect();
    fs::write(bench.path("pairs.jsonl"), pairs).unwrap();
    fs::write(bench.path("diary.txt"), "the cat sat\n".repeat(40)).unwrap();
    for (data, task) in [("pairs.jsonl", "completion"), ("diary.txt", "language-modeling")] {
        let init = ["init", data, "--model", "./model", "--out", "new.toml", "--force", "--json"];
        let said = succeeds(&bench, &init);
        let answer: Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(answer["plan"]["data"]["task"], task);
        assert!(answer["noise_multipliers"][0].as_f64().unwrap() > 0.0);
        succeeds(&bench, &["train", "new.toml", "--dry-run"]);
    }
    // A model that would have to be downloaded is not, and the file is still written.
    let far = ["init", "diary.txt", "--model", "nobody/no-such-model", "--out", "far.toml"];
    let said = succeeds(&bench, &far);
    assert!(text(&said.stdout).contains("not on this machine"), "{}", text(&said.stdout));
    fs::write(bench.path("odd.csv"), "foo,bar\na,b\n").unwrap();
    refused(&undertone(&bench, &["init", "odd.csv", "--out", "odd.toml"]), "--task");
    refused(
        &undertone(
            &bench,
            &["init", "odd.csv", "--label", "bar", "--text", "baz", "--out", "odd.toml"],
        ),
        "baz",
    );
    assert!(!bench.path("odd.toml").exists());
}

#[test]
fn what_is_missing_or_misspelled_is_told_in_one_sentence() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    refused(&undertone(&bench, &["train"]), "--model, --data");
    refused(&undertone(&bench, &["train", "--model", "./model", "--data", "rows.tsv"]), "--text");
    let no_budget = undertone(&bench, &FLAGS);
    refused(&no_budget, "or instead --epsilon");
    refused(&undertone(&bench, &["train", "run.toml", "--epsilon", "-1"]), "is -1");
    refused(&undertone(&bench, &["init", "rows.tsv", "--epsilon", "-1", "--out", "n.toml"]), "-1");
    refused(&undertone(&bench, &["train", "run.toml", "--label", "a"]), "--set");
    refused(&undertone(&bench, &["train", "--resume"]), "--out DIR");
    refused(&undertone(&bench, &["train", "run.toml", "--out", "rows.tsv"]), "is a file");
    succeeds(&bench, &["train", "run.toml", "--out", "done", "--set", "training.epochs=1"]);
    let resumed = ["train", "--resume", "--out", "done", "--epsilon", "2"];
    refused(&undertone(&bench, &resumed), "omit their flags");
    fs::write(bench.path("empty.toml"), "").unwrap();
    let empty = undertone(&bench, &["train", "empty.toml"]);
    refused(&empty, "model.path");
    for key in ["data.task", "data.train", "data.text", "privacy.epsilon"] {
        assert!(text(&empty.stderr).contains(key), "{}", text(&empty.stderr));
    }
    fs::write(bench.path("typo.toml"), run_file("[training]\nbatch_size = 3\n")).unwrap();
    refused(&undertone(&bench, &["train", "typo.toml"]), "did you mean `batch`?");
    assert!(!bench.path("runs").exists(), "nothing has begun");
    sentences.assert("first_run");
}
