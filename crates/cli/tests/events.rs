//! `compute.log`: the shareable figures, for experiment trackers.

use crate::bench::*;
use serde_json::Value;
use std::fs;

const LOG: [&str; 4] = ["--set", "compute.log=jsonl", "--set", "training.epochs=2"];

fn events(bench: &Bench, out: &str) -> Vec<Value> {
    let text = fs::read_to_string(bench.path(out).join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(event: &Value) -> Vec<&str> {
    event["metrics"].as_object().unwrap().keys().map(String::as_str).collect()
}

/// The settings at the beginning, one line per step, and the guarantee at the end; nothing computed
/// without noise, no path and no time.
#[test]
fn a_log_has_what_may_be_shared() {
    let bench = Bench::classifier();
    let summary = bench.train("run", &LOG);
    let log = events(&bench, "run");
    assert_eq!(log.len(), 1 + 12 + 1);
    assert!(log.iter().all(|event| event["version"] == 1));
    let (begin, end) = (&log[0], &log[13]);
    assert_eq!((&begin["event"], &begin["steps"]), (&"begin".into(), &12.into()));
    assert_eq!(begin["settings"]["privacy.epsilon"], 8.0);
    assert_eq!(begin["settings"]["training.batch"], 20);
    for (i, step) in log[1..13].iter().enumerate() {
        assert_eq!((&step["event"], &step["step"]), (&"step".into(), &(i + 1).into()));
        assert_eq!(names(step), ["epsilon", "learning_rate"]);
    }
    assert_eq!(log[12]["epoch"], 2);
    assert_eq!((&end["event"], &end["private"]), (&"end".into(), &true.into()));
    assert_eq!(end["guarantee"]["epsilon"], summary["guarantee"]["epsilon"]);
    assert!(names(end).is_empty(), "the validation file is private");
    let text = String::from_utf8(bench.bytes("run/events.jsonl")).unwrap();
    let folder = bench.folder.path().to_str().unwrap();
    for private in [folder, "loss", "seconds", "rows.tsv", "sentence"] {
        assert!(!text.contains(private), "{private}: {text}");
    }
}

#[test]
fn metrics_on_public_files_and_what_the_user_asks_for_are_logged_too() {
    let bench = Bench::classifier();
    let public = format!("data.validation={:?}", bench.public().to_str().unwrap());
    let public = ["--set", &public, "--set", "data.validation_is_public=true"];
    let summary = bench.train("public", &[&LOG[..], &public].concat());
    let log = events(&bench, "public");
    let shown = ["epsilon", "learning_rate", "validation/accuracy"];
    assert!(shown.iter().all(|name| names(&log[12]).contains(name)), "{}", log[12]);
    assert!(!names(&log[12]).contains(&"loss"), "{}", log[12]);
    let accuracy = &summary["metrics"]["validation"]["accuracy"];
    assert_eq!(&log[13]["metrics"]["validation/accuracy"], accuracy);
    // In a run without a guarantee the weights may reveal anything, and so may this metric.
    bench.train("seeded", &[&LOG[..], &public, &["--seed", "1"]].concat());
    assert!(!names(&events(&bench, "seeded")[12]).contains(&"validation/accuracy"));
    bench.train("all", &[&LOG[..], &["--set", "compute.log_private=true"]].concat());
    let log = events(&bench, "all");
    assert!(names(&log[1]).contains(&"units") && names(&log[1]).contains(&"clipped"));
    assert!(names(&log[12]).contains(&"validation/accuracy"));
    bench.refused("no", &["--set", "compute.log_private=true"], "compute.log_private is for runs");
    bench.refused("no", &["--set", "compute.log=mlflow"], "compute.log");
}

#[test]
fn rows_of_a_table_are_the_same_figures() {
    let bench = Bench::classifier();
    bench.train("run", &["--set", "compute.log=csv", "--set", "training.epochs=2"]);
    let text = fs::read_to_string(bench.path("run/events.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("step,epoch,learning_rate,epsilon,clip,validation/accuracy"));
    assert!(lines.len() == 13 && lines[12].starts_with("12,2,0.001,"), "{text}");
    let columns = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == columns), "{text}");
}

/// After a kill, no step is logged twice and none is missing.
#[test]
fn a_resumed_run_has_the_log_of_a_whole_one() {
    let bench = Bench::classifier();
    for format in ["jsonl", "csv"] {
        let log = format!("compute.log={format}");
        let set = ["--set", &log, "--set", "training.epochs=20", "--seed", "3"];
        let set = [&set[..], &["--set", "compute.checkpoint_every=7"]].concat();
        let (whole, broken) = (format!("whole-{format}"), format!("broken-{format}"));
        bench.train(&whole, &set);
        assert!(bench.kill_after(&broken, &set, 12), "it was too fast to be killed");
        bench.resume(&broken);
        // The ε of repeated steps is ahead of them, as in metrics.jsonl.
        let steps = |out: &str| -> Vec<String> {
            let text = fs::read_to_string(bench.path(out).join(format!("events.{format}")));
            let text = text.unwrap();
            let step = |line: &str| match format {
                "csv" => line.split(',').next().unwrap().to_owned(),
                _ => {
                    let line: Value = serde_json::from_str(line).unwrap();
                    format!("{} {}", line["event"], line["step"])
                }
            };
            text.lines().map(step).collect()
        };
        assert_eq!(steps(&whole), steps(&broken));
    }
}
