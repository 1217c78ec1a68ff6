//! Ctrl-C and closed pipes, with a real process.

#![cfg(unix)]

use crate::bench::*;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Many steps, and no checkpoint except the one triggered by a signal.
const LONG: [&str; 6] =
    ["--seed", "3", "--set", "training.epochs=24", "--set", "compute.checkpoint_every=100000"];

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Waits until `steps` steps are recorded.
fn wait_for_steps(bench: &Bench, out: &str, child: &mut Child, steps: usize) {
    let metrics = bench.path(out).join("metrics.jsonl");
    let start = Instant::now();
    while fs::read_to_string(&metrics).map_or(0, |text| text.lines().count()) < steps {
        assert!(child.try_wait().unwrap().is_none(), "the run has ended too early");
        assert!(start.elapsed() < Duration::from_secs(120), "no step in two minutes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_signal_leaves_a_checkpoint_that_is_gone_on_from() {
    let bench = Bench::classifier();
    bench.train("whole", &LONG);
    let mut stopped = 0;
    for name in ["INT", "TERM"] {
        let mut command = bench.command(name, &LONG);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        wait_for_steps(&bench, name, &mut child, 3);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            // The run finished before the signal.
            continue;
        }
        stopped += 1;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{said}");
        let resume = format!("undertone train --out {} --resume", bench.path(name).display());
        assert!(said.contains(&resume) && said.contains("stopped after step "), "{said}");
        // A short step is over before the announcement.
        if let Some(heard) = said.find("stopping after this step") {
            assert!(heard < said.find("stopped after step ").unwrap(), "{said}");
        }
        assert!(bench.path(name).join("checkpoint.safetensors").is_file());
        assert!(!bench.path(name).join("summary.json").exists());
        let steps = bench.metrics(name).len();
        bench.resume(name);
        // No step is taken twice, and the run equals an uninterrupted one.
        assert!((3..144).contains(&steps), "{steps}");
        bench.assert_same_runs(name, "whole", "model/model.safetensors");
    }
    assert!(stopped > 0, "no run was stopped");
}

#[test]
fn a_signal_before_the_first_step_ends_the_run_at_once() {
    let bench = Bench::classifier();
    let mut child =
        bench.command("run", &LONG).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // The handler is installed before the model is loaded; an earlier signal also ends the process.
    std::thread::sleep(Duration::from_millis(20));
    signal(&child, "INT");
    let status = child.wait().unwrap();
    assert!(!status.success(), "{status}");
    assert!(!bench.path("run/summary.json").exists());
}

#[test]
fn nobody_has_to_read_what_a_run_says() {
    let bench = Bench::classifier();
    // Standard error is read up to its first line, and standard output is not read.
    let mut child = bench
        .command("run", &["--set", "training.epochs=1"])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut first = String::new();
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    reader.read_line(&mut first).unwrap();
    drop(reader);
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(bench.path("run/summary.json").exists());
    // Both streams are closed from the beginning.
    let mut child = bench
        .command("json", &["--json", "--set", "training.epochs=1"])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert!(child.wait().unwrap().success());
    assert!(bench.path("json/summary.json").exists());
    let mut text = String::new();
    fs::File::open(bench.path("json/summary.json")).unwrap().read_to_string(&mut text).unwrap();
    assert!(text.ends_with('}') || text.ends_with("}\n"));
}
