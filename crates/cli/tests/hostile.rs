//! Files and environments designed to crash, hang or mislead the program.

use crate::bench::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn undertone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap()
}

/// Runs `train` in a shell after `before`, with `redirection` at the end.
#[cfg(unix)]
fn train_in_shell(bench: &Bench, out: &str, before: &str, redirection: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_undertone");
    let (run, out) = (bench.path("run.toml"), bench.path(out));
    let line = format!(
        "{before}\n exec {program:?} train {run:?} --out {out:?} --set training.epochs=1 \
         {redirection}"
    );
    Command::new("sh").args(["-c", &line]).output().unwrap()
}

/// A run continues even if nobody reads its output.
#[cfg(unix)]
#[test]
fn printing_never_stops_a_run() {
    let bench = Bench::classifier();
    for (name, redirection) in
        [("closed", "2>&-"), ("full", "2>/dev/full"), ("both", "2>&- >&-"), ("pipe", "2>&1 | true")]
    {
        if redirection.contains("/dev/full") && !Path::new("/dev/full").exists() {
            continue;
        }
        train_in_shell(&bench, name, "", redirection);
        assert!(bench.path(name).join("summary.json").exists(), "{redirection}: not finished");
    }
}

/// A full disk is not the user's mistake: exit code 1, and the run can be resumed.
#[cfg(unix)]
#[test]
fn a_full_disk_is_a_failure_of_the_machine() {
    let bench = Bench::classifier();
    let output = train_in_shell(&bench, "run", "trap '' XFSZ; ulimit -f 16", "");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    if bench.path("run/ledger.jsonl").exists() {
        assert!(error.contains("the disk is full, and the run needs about "), "{error}");
        assert!(error.contains(" MB; free some, then continue with: undertone train"), "{error}");
        assert!(error.contains("--resume"), "{error}");
    }
    if bench.path("run/plan.toml").exists() {
        bench.resume("run");
    }
}

#[test]
fn broken_folders_are_refused_at_once() {
    let bench = Bench::classifier();
    bench.train("run", &["--set", "training.epochs=1"]);
    let (run, out) = (bench.path("run"), bench.path("report.html"));
    let (run, out) = (run.to_str().unwrap(), out.to_str().unwrap());
    let whole = bench.bytes("run/private/summary.json");
    let mut summary: Value = serde_json::from_slice(&whole).unwrap();
    let matrix = &mut summary["metrics"]["validation"]["confusion"];
    matrix[0] = json!([1, 2, 3, 4, 5, 6, 7]);
    fs::write(bench.path("run/private/summary.json"), summary.to_string()).unwrap();
    refused(&undertone(&["report", run, "--out", out]), "summary.json: is not a summary");
    fs::write(bench.path("run/private/summary.json"), "[]").unwrap();
    refused(&undertone(&["report", run, "--out", out]), "private/summary.json: is not a summary");
    fs::remove_file(bench.path("run/private/summary.json")).unwrap();
    assert!(undertone(&["report", run, "--out", out]).status.success(), "as it is published");
    fs::write(bench.path("run/summary.json"), "{\"format\": 3").unwrap();
    refused(&undertone(&["watch", run]), "summary.json");
    refused(&undertone(&["report", run, "--out", out]), "summary.json");
    refused(&undertone(&["train", "--resume", "--out", "no/such/folder"]), "contains no run");
}

/// Endless inputs are not read.
#[cfg(unix)]
#[test]
fn pipes_and_devices_are_no_files() {
    let bench = Bench::classifier();
    let pipe = bench.path("pipe");
    if !Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
        return;
    }
    let zero = Path::new("/dev/zero");
    for file in [
        "run.toml",
        "rows.tsv",
        "model/config.json",
        "model/tokenizer.json",
        "model/model.safetensors",
    ] {
        let path = bench.path(file);
        let before = fs::read(&path).unwrap();
        for attack in [pipe.as_path(), zero] {
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink(attack, &path).unwrap();
            let output = bench.command(&format!("out-{}", file.replace('/', "-")), &[]).output();
            // Weights that are not a regular file count as missing.
            let about = if file.ends_with("safetensors") { "is missing" } else { "regular file" };
            refused(&output.unwrap(), about);
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, before).unwrap();
    }
}

/// Names and labels cannot steer the terminal of someone who reads an error or a report.
#[test]
fn what_steers_a_terminal_is_escaped() {
    let bench = Bench::classifier();
    let steers = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.chars().any(|c| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}')
    };
    let rows = "sentence\tlabel\twho\nthe cat\tbad\u{1b}[2J\u{202e}\tme\n";
    fs::write(bench.path("rows.tsv"), rows).unwrap();
    let output = bench.command("run", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(!steers(&output.stderr), "{}", String::from_utf8_lossy(&output.stderr));
    for arguments in [
        ["eval", "--model", "no\u{1b}[2Jsuch", "--data", "x.tsv"],
        ["report", "no\u{202e}such", "--out", "x.html", "--public"],
        ["train", "no\nsuch", "--out", "x", "--json"],
    ] {
        let output = undertone(&arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(!steers(&output.stderr), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
    }

    let labeled = Bench::classifier();
    let labels = "labels = [\"bad\", \"neutral\", \"good\"]";
    let text = fs::read_to_string(labeled.path("run.toml")).unwrap();
    let hostile = "labels = [\"bad\", \"ne\\u001b[2J\\u202eutral https://evil.example\", \"good\"]";
    fs::write(labeled.path("run.toml"), text.replace(labels, hostile)).unwrap();
    labeled.train("run", &["--set", "training.epochs=1"]);
    let run = labeled.path("run");
    for name in ["report.html", "report.md"] {
        let out = labeled.path(name);
        let output = undertone(&["report", run.to_str().unwrap(), "--out", out.to_str().unwrap()]);
        assert!(output.status.success() && !steers(&output.stdout));
        assert!(!steers(&fs::read(&out).unwrap()), "{name}");
    }
    let card = labeled.bytes("run/model/README.md");
    assert!(!steers(&card));
    assert!(!String::from_utf8(card).unwrap().contains("https://evil"), "a bare link");
}

/// A non-finite model is never a success.
#[test]
fn weights_that_are_not_finite_are_not_saved() {
    let bench = Bench::classifier();
    let adapt = format!(
        "privacy.local.adapt={{ public = {:?}, learning_rate = 1e6, epochs = 20 }}",
        bench.public()
    );
    let diverging = ["--set", "privacy.method=dp-forward", "--set", &adapt];
    bench.refused("run", &diverging, "finite");
    assert!(!bench.path("run/summary.json").exists());
}

#[test]
fn absurd_budgets_are_refused() {
    let bench = Bench::classifier();
    for epsilon in ["1e-308", "1e-5", "0", "-1", "1e308", "nan"] {
        bench.refused("run", &["--set", &format!("privacy.epsilon={epsilon}")], "privacy.epsilon");
    }
}

/// The arguments of verbs that support several ranks are compared between ranks.
#[cfg(unix)]
#[test]
fn an_argument_that_is_not_utf8_is_a_mistake() {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(b"x\xff\xfe");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_undertone"));
    let output = command.args(["eval", "--model", "missing", "--data"]).arg(name).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}
