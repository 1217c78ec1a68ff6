//! `watch` on a run of another process, in a pipe.

use crate::bench::*;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn watch(bench: &Bench, run: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.arg("watch").arg(bench.path(run));
    command
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn files(bench: &Bench, run: &str) -> BTreeSet<String> {
    let names = fs::read_dir(bench.path(run)).unwrap().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_run_is_followed_until_it_is_finished() {
    let bench = Bench::classifier();
    let settings = ["--set", "training.epochs=60", "--set", "privacy.method=adaclip"];
    let mut run = bench
        .command("run", &settings)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !bench.path("run/run.lock").exists() {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    let printed = said(&watch(&bench, "run").output().unwrap());
    assert!(run.wait().unwrap().success(), "the run was not disturbed");
    let lines: Vec<&str> = printed.lines().collect();
    let last = lines[lines.len() - 2];
    assert!(last.starts_with("step 360/360, loss ") && last.contains("accuracy "), "{printed}");
    assert!(last.contains(" of 8") && last.ends_with("examples/s"), "{printed}");
    let end = lines[lines.len() - 1];
    assert!(end.starts_with("finished; (7.9") || end.starts_with("finished; (8.0000"), "{printed}");
    assert!(end.contains("differential privacy for adding or removing one example"), "{printed}");
    // Again after the run has ended; nothing is left behind.
    let before = files(&bench, "run");
    let again = said(&watch(&bench, "run").output().unwrap());
    assert!(again.lines().count() == 2 && again.contains(end), "{again}");
    assert_eq!(files(&bench, "run"), before);
    // The noise allocation is in the metrics of the last step of each epoch, as soon as it differs
    // between parameters.
    //
    let metrics = bench.metrics("run");
    let uneven: Vec<_> =
        metrics.iter().filter(|record| record["noise_by_parameter"].is_array()).collect();
    assert!(
        !uneven.is_empty() && uneven.iter().all(|record| record["step"].as_u64().unwrap() % 6 == 0)
    );
}

#[test]
fn a_seeded_run_is_never_called_private() {
    let bench = Bench::classifier();
    bench.train("run", &["--seed", "1", "--tui"]);
    let printed = said(&watch(&bench, "run").output().unwrap());
    assert!(printed.contains("(no guarantee: the seed is known)"), "{printed}");
    assert!(
        printed.contains("finished; not private: ") && !printed.contains("differential privacy"),
        "{printed}"
    );
}

#[test]
fn what_is_not_a_run_is_refused() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    refused(&watch(&bench, "nowhere").output().unwrap(), "contains no run");
    fs::create_dir(bench.path("empty")).unwrap();
    refused(&watch(&bench, "empty").output().unwrap(), "contains no run");
    assert!(files(&bench, "empty").is_empty());
    sentences.assert("watch");
}
