//! Attacks on data: a command overwrites only files that it created itself.

use crate::bench::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn undertone(arguments: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap()
}

/// Every file below a folder, with its contents.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut contents = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path().is_dir() {
            true => contents.extend(files(&entry.path())),
            false => contents.push((entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
    contents.sort();
    contents
}

#[test]
fn a_run_writes_over_nothing() {
    let bench = Bench::classifier();
    let work = bench.path("work");
    fs::create_dir(&work).unwrap();
    fs::rename(bench.path("model"), work.join("model")).unwrap();
    let model = format!("model.path={:?}", work.join("model"));
    let before = files(&work);
    bench.refused("work", &["--set", &model], "model: exists, and the run would overwrite it");
    assert!(files(&work).iter().filter(|(path, _)| !path.ends_with("run.lock")).eq(&before));
    for name in ["metrics.jsonl", "summary.json", "audit.json", "noise.svg"] {
        let folder = bench.path(&format!("with-{name}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(name), "the thesis").unwrap();
        bench.refused(&format!("with-{name}"), &["--set", &model], "would overwrite it");
        assert_eq!(fs::read(folder.join(name)).unwrap(), b"the thesis");
    }
}

/// A folder with other files is used only with `--force`.
#[test]
fn a_run_does_not_mix_with_other_files() {
    let bench = Bench::classifier();
    let folder = bench.path("work");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join(".gitignore"), "*").unwrap();
    let short = ["--set", "training.epochs=1"];
    let notes = folder.join("notes.txt");
    fs::write(&notes, "mine").unwrap();
    bench.refused("work", &short, "holds other files, such as notes.txt");
    assert!(!folder.join("plan.toml").exists() && !folder.join("run.lock").exists());
    bench.train("work", &[&short[..], &["--force"]].concat());
    assert_eq!(fs::read(&notes).unwrap(), b"mine");
    // Temporary files of a killed run are the run's own.
    for name in ["ledger.jsonl.head.new", "plan.toml.undertone-part"] {
        fs::write(folder.join(name), "").unwrap();
    }
    fs::remove_file(&notes).unwrap();
    bench.refused("work", &short, "already contains a run");
    // Hidden files do not count, and a missing folder needs no `--force`.
    let hidden = bench.path("hidden");
    fs::create_dir(&hidden).unwrap();
    fs::write(hidden.join(".gitignore"), "*").unwrap();
    bench.train("hidden", &short);
    let resumed = undertone(&["train", "--resume", "--force", "--out", "x"].map(Path::new));
    refused(&resumed, "cannot be used with");
}

#[test]
fn predictions_and_reports_write_over_their_own_files_only() {
    let bench = Bench::classifier();
    bench.train("run", &["--set", "training.epochs=1"]);
    bench.train("other", &["--set", "training.epochs=1"]);
    let before = files(bench.folder.path());
    let predict = |data: &Path, out: &Path| {
        let [model, rows] = [bench.path("model"), data.to_owned()];
        let words = ["predict", "--text", "sentence", "--model"].map(PathBuf::from);
        let mut all: Vec<&Path> = words.iter().map(PathBuf::as_path).collect();
        all.extend([model.as_path(), Path::new("--data"), &rows, Path::new("--out"), out]);
        undertone(&all)
    };
    let rows = bench.path("rows.tsv");
    let mut precious = vec![bench.path("model/config.json"), rows.clone()];
    precious.extend(
        ["ledger.jsonl", "summary.json", "metrics.jsonl"].map(|f| bench.path("run").join(f)),
    );
    precious.push(bench.path("model/said.jsonl"));
    for out in &precious {
        refused(&predict(&rows, out), "");
    }
    let report =
        |out: &Path| undertone(&[Path::new("report"), &bench.path("run"), Path::new("--out"), out]);
    for out in [bench.path("other/ledger.jsonl"), bench.path("other/new.html"), rows.clone()] {
        refused(&report(&out), "");
    }
    #[cfg(unix)]
    {
        let link = bench.path("link.jsonl");
        std::os::unix::fs::symlink(bench.path("model/config.json"), &link).unwrap();
        refused(&predict(&rows, &link), "link");
        fs::remove_file(&link).unwrap();
        let made = Command::new("mkfifo").arg(bench.path("pipe.jsonl")).status();
        if made.is_ok_and(|status| status.success()) {
            refused(&predict(&rows, &bench.path("pipe.jsonl")), "regular file");
            fs::remove_file(bench.path("pipe.jsonl")).unwrap();
        }
        refused(&report(Path::new("/dev/null")), "");
    }
    // A temporary file that has not been renamed yet is not data either.
    let part = bench.path("said.jsonl.undertone-part");
    fs::copy(&rows, &part).unwrap();
    let format = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["predict", "--text", "sentence", "--format", "tsv", "--model"])
        .arg(bench.path("model"))
        .arg("--data")
        .arg(&part)
        .arg("--out")
        .arg(bench.path("said.jsonl"))
        .output()
        .unwrap();
    refused(&format, "is an input file");
    fs::remove_file(&part).unwrap();
    assert!(files(bench.folder.path()) == before, "a refused command has changed something");
    // Created twice by the same command.
    for name in ["said.jsonl", "said.tsv", "said.csv"] {
        for _ in 0..2 {
            let done = predict(&rows, &bench.path(name));
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
    }
    for name in ["report.html", "report.md"] {
        for _ in 0..2 {
            assert!(report(&bench.path(name)).status.success());
        }
    }
    refused(&report(&bench.path("said.jsonl")), "was written by something else");
}

#[test]
fn sweeps_and_charts_remove_nothing_of_others() {
    let bench = Bench::classifier();
    let sweep = "base = \"run.toml\"\nmetric = \"accuracy\"\nseeds = [1]\n\
                 set = { \"training.epochs\" = 1 }\n\
                 rows = [ { label = \"DP-SGD\", set = { \"privacy.method\" = \"dp-sgd\" } } ]\n\
                 columns = [ { label = \"all\", set = { \"privacy.epsilon\" = 8.0 } } ]\n";
    fs::write(bench.path("sweep.toml"), sweep).unwrap();
    let run = |out: &str| {
        undertone(&[
            Path::new("sweep"),
            &bench.path("sweep.toml"),
            Path::new("--out"),
            &bench.path(out),
        ])
    };
    fs::create_dir(bench.path("mine")).unwrap();
    fs::write(bench.path("mine/table.md"), "the thesis").unwrap();
    refused(&run("mine"), "already contains files");
    assert_eq!(bench.bytes("mine/table.md"), b"the thesis");
    let done = run("sweep");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut runs = fs::read_dir(bench.path("sweep/runs")).unwrap().flatten().map(|run| run.path());
    let folder = runs.find(|path| path.is_dir()).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("thesis.txt"), "the thesis").unwrap();
    let again = run("sweep");
    assert!(!again.status.success());
    assert_eq!(fs::read(folder.join("thesis.txt")).unwrap(), b"the thesis");

    let plot = |out: &Path| {
        let words = [
            "budget",
            "curve",
            "--noise-multiplier",
            "1",
            "--sampling-rate",
            "0.01",
            "--steps",
            "10",
            "--plot",
        ];
        Command::new(env!("CARGO_BIN_EXE_undertone")).args(words).arg(out).output().unwrap()
    };
    let chart = bench.path("chart.svg");
    assert!(plot(&chart).status.success() && plot(&chart).status.success());
    refused(&plot(&bench.path("rows.tsv")), "was written by something else");
}
