//! Several processes that train one model: the files they write, what stops them, and what they
//! refuse.

#![cfg(unix)]

use crate::bench::*;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Many steps, and no checkpoint except the one triggered by a signal.
const LONG: [&str; 4] = ["--set", "training.epochs=40", "--set", "compute.checkpoint_every=100000"];

/// Starts one rank of a job.
fn rank(bench: &Bench, job: &str, rank: usize, ranks: usize, arguments: &[&str]) -> Child {
    let (rank, ranks) = (rank.to_string(), ranks.to_string());
    Command::new(env!("CARGO_BIN_EXE_undertone"))
        .arg("train")
        .args(arguments)
        .arg("--rendezvous")
        .arg(bench.path(job))
        .args(["--rank", &rank, "--ranks", &ranks, "--join-timeout", "60"])
        .env("RAYON_NUM_THREADS", "1")
        .current_dir(bench.folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn start(bench: &Bench, out: &str, ranks: usize, more: &[&str]) -> Vec<Child> {
    let job = format!("{out}-job");
    let arguments = [&["run.toml", "--out", out], more].concat();
    (0..ranks).map(|number| rank(bench, &job, number, ranks, &arguments)).collect()
}

fn resume(bench: &Bench, out: &str, ranks: usize) -> Vec<Output> {
    let job = format!("{out}-job");
    let all =
        (0..ranks).map(|number| rank(bench, &job, number, ranks, &["--out", out, "--resume"]));
    ends(all.collect())
}

fn ends(children: Vec<Child>) -> Vec<Output> {
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn succeed(outputs: &[Output]) {
    for output in outputs {
        assert!(output.status.success(), "{}", said(output));
    }
}

fn wait_for_steps(bench: &Bench, out: &str, steps: usize) {
    let metrics = bench.path(out).join("metrics.jsonl");
    let begun = Instant::now();
    while fs::read_to_string(&metrics).map_or(0, |text| text.lines().count()) < steps {
        assert!(begun.elapsed() < Duration::from_secs(120), "no step in two minutes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn two_processes_leave_one_run_that_proves_its_guarantee() {
    let bench = Bench::classifier();
    let outputs = ends(start(&bench, "run", 2, &["--json"]));
    succeed(&outputs);
    let summary: serde_json::Value = serde_json::from_slice(&outputs[0].stdout).unwrap();
    assert_eq!((&summary["private"], &summary["steps"]), (&true.into(), &12.into()));
    assert!(summary["guarantee"]["epsilon"]["upper"].as_f64().unwrap() <= 8.0);
    // Rank 0 prints for all, and a single ledger contains each release once.
    assert!(outputs[1].stdout.is_empty() && outputs[1].stderr.is_empty(), "{}", said(&outputs[1]));
    let ledger = fs::read_to_string(bench.path("run/ledger.jsonl")).unwrap();
    assert_eq!(ledger.lines().count(), 13);
    assert_eq!(bench.metrics("run").len(), 12);
    for gone in ["run/secret.key", "run/run.lease", "run-job/rendezvous.json"] {
        assert!(!bench.path(gone).exists(), "{gone}");
    }
    assert!(bench.path("run/model/model.safetensors").is_file());
    // The report, the card and the summary state what was trusted.
    assert_eq!(summary["ranks"], 2);
    let report = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(["report", "--out"])
        .args([bench.path("report.md"), bench.path("run")])
        .output()
        .unwrap();
    assert!(report.status.success(), "{}", said(&report));
    for file in ["report.md", "run/model/README.md"] {
        let text = fs::read_to_string(bench.path(file)).unwrap();
        assert!(text.contains("between the 2 processes"), "{file}: {text}");
    }
}

#[test]
fn a_killed_rank_stops_all_and_the_run_goes_on_with_as_many() {
    let bench = Bench::classifier();
    let more = [&LONG[..], &["--seed", "3"]].concat();
    succeed(&ends(start(&bench, "whole", 3, &more)));
    let mut children = start(&bench, "run", 3, &more);
    wait_for_steps(&bench, "run", 4);
    let mut killed = children.remove(2);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let begun = Instant::now();
    for output in ends(children) {
        let printed = said(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("rank 2 on ") && printed.contains("all ranks stop"), "{printed}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    // Recorded steps are repeated, and are identical only with the same number of ranks.
    let printed: String = resume(&bench, "run", 2).iter().map(said).collect();
    assert!(printed.contains("resume with that number"), "{printed}");
    succeed(&resume(&bench, "run", 3));
    bench.assert_same_runs("run", "whole", "model/model.safetensors");
}

#[test]
fn a_signal_to_one_rank_stops_all_and_the_run_goes_on_with_any_number() {
    let bench = Bench::classifier();
    let average = ["--set", "training.average={ ema = 0.9 }", "--seed", "3"];
    let filter = ["--set", "training.filter_gain=0.6"];
    let more = [&LONG[..], &average, &filter].concat();
    succeed(&ends(start(&bench, "whole", 2, &more)));
    let children = start(&bench, "run", 2, &more);
    wait_for_steps(&bench, "run", 4);
    signal(&children[1], "TERM");
    for output in ends(children) {
        assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    }
    // Each rank holds part of the optimizer's state and of the average; the checkpoint contains
    // all.
    let mut copy = Command::new("cp");
    let copied = copy.args(["-r", "run", "again"]);
    assert!(copied.current_dir(bench.folder.path()).status().unwrap().success());
    succeed(&resume(&bench, "again", 2));
    bench.assert_same_runs("again", "whole", "model/model.safetensors");
    // No step is repeated, so a different number of ranks may sum differently.
    succeed(&resume(&bench, "run", 3));
    assert_eq!(bench.metrics("run").len(), bench.metrics("whole").len());
    let entries =
        |out: &str| bench.bytes(&format!("{out}/ledger.jsonl")).split(|&b| b == b'\n').count();
    assert_eq!(entries("run"), entries("whole"));
    let weights = |out: &str| bench.parameters(&format!("{out}/model/model.safetensors"));
    let furthest =
        weights("run").iter().zip(weights("whole")).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    assert!(furthest < 2e-3, "{furthest}");
}

#[test]
fn a_rank_with_something_else_is_refused_before_the_first_step() {
    let bench = Bench::classifier();
    let rows = fs::read_to_string(bench.path("rows.tsv")).unwrap();
    fs::write(bench.path("other.tsv"), rows.replace("cat", "dog")).unwrap();
    fs::create_dir(bench.path("there")).unwrap();
    // The same plan text, referring to different files.
    let run = fs::read_to_string(bench.path("run.toml")).unwrap();
    let here = bench.folder.path().display().to_string();
    fs::write(bench.path("run.toml"), run.replace(&format!("{here}/"), "")).unwrap();
    for (i, (about, change)) in [
        ("has other training data", "training.epochs=2"),
        ("has another plan", "training.epochs=3"),
        ("has another compute.checkpoint_every", "compute.checkpoint_every=1"),
    ]
    .iter()
    .enumerate()
    {
        let (out, job) = (format!("run{i}"), bench.path(&format!("job{i}")));
        let arguments = ["run.toml", "--out", &out, "--seed", "3"];
        let first = rank(&bench, job.to_str().unwrap(), 0, 2, &arguments);
        let changed = Command::new(env!("CARGO_BIN_EXE_undertone"))
            .arg("train")
            .arg(bench.path("run.toml"))
            .args(["--rank", "1", "--ranks", "2", "--seed", "3", "--rendezvous"])
            .arg(&job)
            .args(["--set", change])
            .env("RAYON_NUM_THREADS", "1")
            .current_dir(if i == 0 { there(&bench) } else { bench.folder.path().to_owned() })
            .output()
            .unwrap();
        for output in [first.wait_with_output().unwrap(), changed] {
            let printed = said(&output);
            assert!(!output.status.success());
            assert!(printed.contains(&format!("rank 1 {about}")), "{printed}");
        }
        assert!(!bench.path(&out).join("ledger.jsonl").exists(), "nothing was released");
    }
}

/// A folder with the same file names and different rows.
fn there(bench: &Bench) -> std::path::PathBuf {
    let folder = bench.path("there");
    fs::create_dir_all(folder.join("model")).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        let from = bench.path("model").join(file);
        fs::copy(from, folder.join("model").join(file)).unwrap();
    }
    fs::copy(bench.path("other.tsv"), folder.join("rows.tsv")).unwrap();
    folder
}

#[test]
fn what_ranks_cannot_share_is_refused() {
    let bench = Bench::classifier();
    let local = ["--set", "privacy.method=dp-forward", "--set", "model.tuning=head"];
    let discriminant = [&local[..], &["--set", "privacy.local.learn=discriminant"]].concat();
    let adapt = [&local[..2], &["--set", "privacy.local.adapt={ share = 0.4 }"]].concat();
    for (out, more, about) in
        [("a", discriminant, "a discriminant is fitted"), ("b", adapt, "runs in one process")]
    {
        let outputs = ends(start(&bench, out, 2, &more));
        outputs.iter().for_each(|output| refused(output, about));
    }
    bench.refused("c", &["--rendezvous", "job", "--rank", "0"], "both --rank and --ranks");
    bench.refused("c", &["--rank", "0", "--ranks", "2"], "--rendezvous");
    // Started by a launcher, but without --rendezvous.
    let output = bench.command("c", &[]).env("RANK", "1").env("WORLD_SIZE", "4").output().unwrap();
    refused(&output, "torchrun started this process as rank 1 of 4");
    let alone = ["--rendezvous", "job", "--rank", "0", "--ranks", "2", "--join-timeout", "1"];
    let output = bench.command("c", &alone).current_dir(bench.folder.path()).output().unwrap();
    refused(&output, "rank 1 did not join through job within 1 s");
    assert!(!bench.path("c").exists());
    // NCCL connects only GPUs.
    let on_cpu = ["--device", "cpu", "--set", "compute.nccl=on"];
    bench.refused("d", &on_cpu, "NCCL cannot be used: rank 0 computes on the CPU");
    bench.refused("d", &["--set", "compute.nccl=maybe"], "nccl");
    assert!(!bench.path("d/ledger.jsonl").exists());
}
