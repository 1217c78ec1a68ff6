//! Flags for the common keys of a run file, and error messages for flags that do not exist.

use crate::bench::*;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

fn undertone(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.current_dir(bench.folder.path()).args(arguments);
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

fn plan(bench: &Bench, arguments: &[&str]) -> Value {
    let output = undertone(bench, &[arguments, &["--dry-run", "--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["plan"].clone()
}

const COMMON: [&str; 10] =
    ["--epochs", "3", "--batch", "12", "--lr", "0.01", "--max-tokens", "9", "--lora-rank", "3"];

fn assert_common(plan: &Value) {
    assert_eq!(plan["training"]["epochs"], 3);
    assert_eq!(plan["training"]["batch"], 12);
    assert_eq!(plan["training"]["learning_rate"], 0.01);
    assert_eq!(plan["data"]["max_tokens"], 9);
    assert_eq!(plan["model"]["tuning"]["lora"]["rank"], 3);
}

#[test]
fn common_keys_have_flags() {
    let bench = Bench::classifier();
    let file = String::from_utf8(bench.bytes("run.toml")).unwrap();
    let lora = file.replace("tuning = \"full\"", "tuning = { lora = { targets = [\"query\"] } }");
    fs::write(bench.path("lora.toml"), lora).unwrap();
    let resolved = plan(&bench, &[&["train", "lora.toml"], &COMMON[..]].concat());
    assert_common(&resolved);
    assert_eq!(resolved["model"]["tuning"]["lora"]["targets"][0], "query", "the rest is kept");
    // --set is applied before a flag, and both also work without a run file.
    let set = ["train", "lora.toml", "--epochs", "3", "--set", "training.epochs=4"];
    assert_eq!(plan(&bench, &set)["training"]["epochs"], 4);
    let flags = ["train", "--model", "./model", "--data", "rows.tsv", "--epsilon", "8"];
    let columns = ["--text", "sentence", "--label", "label", "--labels", "bad,neutral,good"];
    assert_common(&plan(&bench, &[&flags, &columns[..], &COMMON].concat()));
    // `init` also accepts them and writes them to the run file.
    let init = ["init", "rows.tsv", "--model", "./model", "--out", "new.toml", "--no-timing"];
    let written = undertone(&bench, &[&init, &COMMON[..]].concat());
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let text = String::from_utf8(bench.bytes("new.toml")).unwrap();
    for line in ["epochs = 3", "batch = 12", "learning_rate = 0.01", "max_tokens = 9", "rank = 3"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_common(&plan(&bench, &["train", "new.toml"]));
}

#[test]
fn an_unknown_flag_is_told_what_it_should_be() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    for (flags, sentence) in [
        (&["--weight-decay", "0.1"][..], "use --set training.weight_decay=0.1"),
        (&["--weight-decay=0.1"], "use --set training.weight_decay=0.1"),
        (&["--optimizer", "sgd"], "use --set training.optimizer=sgd"),
        (&["--delta", "1e-5"], "use --set privacy.delta=1e-5"),
        (&["--recompute"], "use --set compute.recompute=VALUE"),
        (&["--max-grad-norm", "1"], "use --set privacy.clip=1"),
        (&["--epocs", "3"], "did you mean --epochs?"),
        (&["--nonsense"], "--help"),
        (&["--lora-rank", "4"], "--lora-rank is for LoRA"),
    ] {
        let arguments = [&["train", "run.toml", "--dry-run"], flags].concat();
        refused(&undertone(&bench, &arguments), sentence);
    }
    refused(
        &undertone(&bench, &["init", "rows.tsv", "--weight-decay", "0.1"]),
        "set training.weight_decay in the run file",
    );
    // Other verbs do not have these keys.
    refused(&undertone(&bench, &["watch", "runs/a", "--weight-decay", "0.1"]), "--weight-decay");
    refused(
        &undertone(&bench, &["train", "--resume", "--out", "a", "--epochs", "2"]),
        "contains no run to resume",
    );
    sentences.assert("flags");
}
