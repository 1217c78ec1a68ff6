//! Reports on folders as runs leave them: reports state what the ledger proves, and nothing in a
//! file can become markup.

use crate::snapshot::assert_snapshot;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use undertone_accounting::ledger::{Ledger, RunBinding, Terms};
use undertone_accounting::{Adjacency, Event, Mode, Part, Threat, Unit, rounded_up};
use undertone_report::{Options, Run, report};
use undertone_run::{FORMAT_VERSION, Resolved, RunFile, RunPaths};

const STEP: Event = Event::PoissonGaussian { noise_multiplier: 0.9, sampling_rate: 0.02 };
const DELTA: f64 = 1e-5;

/// Writes a ledger with forty steps.
fn ledger(folder: &Path, mode: Mode) -> Ledger {
    let run = RunBinding {
        plan: RunPaths::new(folder).plan_hash().unwrap(),
        units: 5000,
        sampling_rate: Some(0.02),
        examples_per_user: None,
        steps: 40,
        noise_multipliers: vec![0.9, 0.9],
        delta: DELTA,
        entries: 40,
        device: String::new(),
    };
    let terms = Terms {
        id: String::new(),
        run: Some(run),
        unit: Unit::Example,
        adjacency: Adjacency::AddRemove,
        threat: Threat::Central,
        mode,
        assumptions: vec!["the labels (<b>good</b>, bad) are public".to_owned()],
        announced: vec![Part { event: STEP, count: 1 }],
    };
    let mut ledger = Ledger::create(folder.join("ledger.jsonl"), terms).unwrap();
    for _ in 0..40 {
        ledger.append(STEP, 1).unwrap();
    }
    ledger
}

fn measures(accuracy: f64) -> Value {
    let confusion = [[40, 10], [15, 35]];
    json!({
        "examples": 100, "accuracy": accuracy, "f1": 0.7, "loss": 0.6, "confusion": confusion
    })
}

/// A folder as a finished run leaves it; `change` is applied to summary.json last.
fn folder(parent: &Path, name: &str, mode: Option<Mode>, change: impl Fn(&mut Value)) -> PathBuf {
    let folder = parent.join(name);
    fs::create_dir_all(&folder).unwrap();
    let private = mode == Some(Mode::Proved);
    let mut summary = json!({
        "format": FORMAT_VERSION,
        "private": private,
        "guarantee": null,
        "metrics": { "validation": measures(0.75) },
        "selection": "dev.tsv was used to report, not to choose",
        "throughput": { "examples_per_second": 123.4, "seconds": 56.0 },
        "peak_memory_bytes": 987_000_000_u64,
        "steps": 40,
        "parameters": { "trainable": 1000, "total": 22_000_000 },
        "noise_by_parameter": [
            ["layer.0.query", 0.8], ["layer.1.query", 1.2], ["classifier.weight", 1.0]
        ],
        "resolved": {
            "units": 5000, "steps_per_epoch": 20, "sampling_rate": 0.02,
            "noise_multipliers": [0.9, 0.9]
        },
        "something_new": { "that": "nobody knows yet" },
        "plan": {
            "model": {
                "path": "</pre><script>alert(3)</script>", "tuning": { "lora": { "rank": 8 } }
            },
            "data": {
                "task": "classification",
                "train": "train<script>alert(1)</script>.tsv", "validation": "dev.tsv",
                "labels": ["good\"><img src=x onerror=alert(2)>", "bad|worse"],
                "max_tokens": 64, "most_per_author": 8
            },
            "privacy": {
                "method": if mode.is_some() { "dp-sgd" } else { "none" },
                "mode": if mode == Some(Mode::Paper) { "paper" } else { "proved" },
                "clip": "automatic", "schedule": "uniform"
            },
            "training": {
                "epochs": 2, "batch": 100, "learning_rate": 1e-3,
                "learning_rate_schedule": "linear", "optimizer": "adamw"
            }
        }
    });
    if mode == Some(Mode::Seeded) {
        summary["plan"]["training"]["seed"] = json!(1);
    }
    if !private {
        summary["not_private_because"] = json!("the method is \"none\": no noise was added");
    }
    // The ledger names the plan, and the summary contains the ledger's guarantee and hash.
    let mut planned = summary.clone();
    change(&mut planned);
    let plan: RunFile = serde_json::from_value(planned["plan"].clone()).unwrap();
    let resolved: Resolved = serde_json::from_value(planned["resolved"].clone()).unwrap();
    plan.write_plan(&folder.join("plan.toml"), &resolved).unwrap();
    if let Some(mode) = mode {
        let ledger = ledger(&folder, mode);
        summary["guarantee"] = json!(ledger.guarantee(DELTA).unwrap());
        summary["ledger_hash"] = json!(ledger.hash());
    }
    change(&mut summary);
    fs::write(folder.join("summary.json"), summary.to_string()).unwrap();
    let record = |step: u64| {
        let validation = step.is_multiple_of(20).then(|| measures(0.01 * step as f64));
        json!({
            "step": step, "epoch": 1 + (step - 1) / 20, "units": 9, "loss": 1.0 / step as f64,
            "learning_rate": 0.1, "validation": validation
        })
    };
    let lines: String = (1..=40).map(|step| format!("{}\n", record(step))).collect();
    fs::write(folder.join("metrics.jsonl"), lines).unwrap();
    let interval = json!({ "lower": 0.4, "estimate": 0.5, "upper": 0.6 });
    let reconstruction = json!({
        "targets": 50, "top_1": interval, "top_k": interval, "k": 5,
        "among_candidates": interval, "mean_reciprocal_rank": 0.4, "candidates": 64.0
    });
    let audit = json!({
        "membership": [{
            "attack": "loss & more", "auc": interval,
            "rate_at_0_1_percent": interval, "rate_at_1_percent": interval,
            "members": 100, "others": 100, "roc": [[0.0, 0.0], [0.2, 0.3], [1.0, 1.0]]
        }],
        "one_run": {
            "canaries": 100, "guesses": 20, "right": 12,
            "epsilon_lower": 0.1, "delta": 1e-5, "confidence": 0.95
        },
        "extraction": [{
            "kind": "person", "in_training": 30, "written": 4, "right": 1, "known_before": 0,
            "precision": interval, "recall": interval
        }],
        "reconstruction": [{
            "kind": "phone", "trained": reconstruction, "pretrained": reconstruction
        }],
        "all": [{
            "attack": "membership", "measure": "area", "run": interval, "non_private": null,
            "pretrained": { "lower": null, "estimate": null, "upper": null }, "guessing": 0.5
        }],
        "exposure": [{
            "text": "the code is ####",
            "trained": { "bits": 3.0, "most": 13.3, "rank": 1000.0, "exact": true },
            "pretrained": { "bits": 1.2, "most": 13.3, "rank": 4000.0, "exact": true }
        }]
    });
    fs::write(folder.join("audit.json"), audit.to_string()).unwrap();
    folder
}

fn both(runs: &[Run], public: bool) -> (String, String) {
    let document = report(runs, Options { public }).unwrap();
    (document.html(), document.markdown())
}

#[test]
fn the_epsilon_of_a_report_is_that_of_the_ledger() {
    let place = tempfile::tempdir().unwrap();
    let path = folder(place.path(), "run", Some(Mode::Proved), |_| {});
    let guarantee = Ledger::read(path.join("ledger.jsonl")).unwrap().guarantee(DELTA).unwrap();
    let run = Run::open(&path).unwrap();
    assert_eq!(run.guarantee(), Some(&guarantee));
    let (html, markdown) = both(&[run], false);
    let said = format!("at most {}", rounded_up(guarantee.epsilon.upper));
    assert!(html.contains(&format!("{guarantee}.")) && html.contains(&said), "{guarantee}");
    assert!(markdown.contains(&format!("{guarantee}.")) && markdown.contains(&said));
    // The end of the curve states the same bound.
    assert!(html.contains(&format!(
        "<td class=\"number\" data-name=\"entries of the ledger\">40</td><td class=\"number\" \
         data-name=\"ε, at most\">{}</td>",
        rounded_up(guarantee.epsilon.upper)
    )));
    let hash = Ledger::read(path.join("ledger.jsonl")).unwrap().hash().to_owned();
    assert!(html.contains(&hash) && markdown.contains(&hash));
}

#[test]
fn nothing_in_a_file_becomes_markup() {
    let place = tempfile::tempdir().unwrap();
    let path = folder(place.path(), "run <i>one<i>", Some(Mode::Proved), |_| {});
    let other = folder(place.path(), "two", None, |_| {});
    for runs in [vec![Run::open(&path).unwrap()], Run::open_all(&[path, other]).unwrap()] {
        let (html, markdown) = both(&runs, false);
        for bad in ["<script", "<img", "onerror=alert(2)>", "<i>", "<b>good", "</pre><"] {
            assert!(!html.contains(bad), "{bad}");
        }
        assert!(html.contains("&lt;script&gt;alert(1)"));
        // In Markdown, the plan is quoted verbatim in a fenced block.
        let outside = markdown.split("```").step_by(2).collect::<String>();
        let outside = outside.replace(undertone_report::MARK, "");
        let bare = outside.replace("\\<", "").replace("\\>", "");
        assert!(
            !bare.contains('<')
                && bare.lines().all(|line| !line.trim_start_matches('>').contains('>')),
            "{bare}"
        );
        assert!(outside.contains("bad\\|worse"));
        for outside in ["http:", "https:", "url(", "@import", "<iframe", "<object"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}

#[test]
fn an_open_run_says_plainly_that_nothing_is_guaranteed() {
    let place = tempfile::tempdir().unwrap();
    let run = Run::open(&folder(place.path(), "open", None, |_| {})).unwrap();
    assert!(run.guarantee().is_none());
    let (html, markdown) = both(&[run], false);
    for text in [&html, &markdown] {
        assert!(text.contains("No guarantee") && text.contains("no noise was added"));
        assert!(!text.contains("differential privacy"), "nothing is claimed");
    }
}

/// A paper-mode run and a seeded run: both have an ε in their ledgers, and neither has a guarantee.
#[test]
fn what_a_paper_claims_stands_beside_what_the_ledger_holds() {
    let place = tempfile::tempdir().unwrap();
    for (name, mode) in [("paper", Mode::Paper), ("seeded", Mode::Seeded)] {
        let path = folder(place.path(), name, Some(mode), |summary| {
            if mode == Mode::Paper {
                summary["claimed"] = json!({ "epsilon": 0.2345, "delta": 1e-5 });
            }
        });
        let run = Run::open(&path).unwrap();
        let held = rounded_up(run.guarantee().unwrap().epsilon.upper);
        let (html, markdown) = both(&[run], false);
        for text in [&html, &markdown] {
            assert!(text.contains("No guarantee") && text.contains(&held), "{name}");
            assert_eq!(text.contains("0.2345"), mode == Mode::Paper, "{name}");
            for promise in [
                "ε, proved",
                "In plain words",
                "No attacker",
                "is a guarantee;",
                "any attacker, at most",
                "privately",
            ] {
                assert!(!text.contains(promise), "{name}: {promise}");
            }
        }
    }
}

#[test]
fn a_public_report_leaves_out_what_had_no_noise() {
    let place = tempfile::tempdir().unwrap();
    let paths = [
        folder(place.path(), "a", Some(Mode::Proved), |_| {}),
        folder(place.path(), "b", None, |_| {}),
    ];
    let runs = Run::open_all(&paths).unwrap();
    let ((whole, _), (html, markdown)) = (both(&runs, false), both(&runs, true));
    for secret in [
        "75.00 %",
        "Confusion matrix",
        "123.4",
        "0.99 GB",
        "loss &amp; more",
        "the code is",
        "Loss</strong>",
        "Extraction",
        "All attacks",
    ] {
        assert!(whole.contains(secret), "{secret}");
        assert!(!html.contains(secret) && !markdown.contains(secret), "{secret}");
    }
}

/// For a private run with a file declared public, metrics are post-processing.
#[test]
fn a_public_report_has_metrics_on_a_public_file() {
    let place = tempfile::tempdir().unwrap();
    let declare = |summary: &mut Value| {
        summary["plan"]["data"]["validation_is_public"] = json!(true);
    };
    let private = folder(place.path(), "a", Some(Mode::Proved), declare);
    let (html, markdown) = both(&[Run::open(&private).unwrap()], true);
    assert!(html.contains("75.00 %") && markdown.contains("75.00 %"));
    assert!(!html.contains("123.4") && !html.contains("Loss</strong>"));
    // A seeded run reveals its training data, and so do figures of its model.
    let seeded = folder(place.path(), "b", Some(Mode::Seeded), declare);
    let (html, markdown) = both(&[Run::open(&seeded).unwrap()], true);
    assert!(!html.contains("75.00 %") && !markdown.contains("75.00 %"));
    assert!(markdown.contains("The figures are left out"), "{markdown}");
}

#[test]
fn several_runs_are_compared_and_told_apart() {
    let place = tempfile::tempdir().unwrap();
    let paths = [
        folder(&place.path().join("x"), "run", Some(Mode::Proved), |_| {}),
        folder(&place.path().join("y"), "run", None, |_| {}),
    ];
    let runs = Run::open_all(&paths).unwrap();
    assert_ne!(runs[0].name, runs[1].name);
    let (html, markdown) = both(&runs, false);
    assert!(html.contains("2 runs compared") && html.contains("Accuracy against ε"));
    assert!(markdown.contains("## Comparison") && markdown.contains("75.00 %"));
    let svgs = html.matches("<svg").count();
    assert!(svgs >= 2 * (1 + 6 + 3), "{svgs} drawings");
    assert_eq!(svgs, html.matches("role=\"img\" aria-label=").count());
    assert_eq!(2 * html.matches("<figure>").count(), svgs);
    assert_eq!(
        html.matches("<details>").count(),
        html.matches("<figure>").count(),
        "numbers behind each chart"
    );
}

/// The first screen contains the guarantee in one sentence, and one figure with accuracy and
/// attacks of private and non-private runs. No table needs a scroll box.
#[test]
fn a_report_opens_with_the_story() {
    let place = tempfile::tempdir().unwrap();
    let paths = [
        folder(place.path(), "private", Some(Mode::Proved), |_| {}),
        folder(place.path(), "open", None, |_| {}),
    ];
    let audit = fs::read_to_string(paths[1].join("audit.json")).unwrap();
    fs::write(paths[1].join("audit.json"), audit.replace("\"rank\":1000.0", "\"rank\":1.0"))
        .unwrap();
    let runs = Run::open_all(&paths).unwrap();
    let guarantee = runs[0].guarantee().unwrap().clone();
    let (html, markdown) = both(&runs, false);
    let first = markdown.split("## Comparison").next().unwrap();
    for part in [
        "## At a glance",
        &format!("> **Guaranteed.** private: {guarantee}."),
        "No guarantee: open.",
        "| Accuracy | private | 75.00 % |",
        "| Accuracy | open | 75.00 % |",
        "an attacker finds (1 % false alarms) | open | 50.0 % |",
        "| Planted secrets that the model ranks first | private | 0 of 1 |",
        "| Planted secrets that the model ranks first | open | 1 of 1 |",
        "it restores | open | 25 of 50 |",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert!(!html.contains("class=\"scroll\"") && html.contains("data-name=\"accuracy\""));
    // A public report starts with what may be shared.
    let (_, public) = both(&runs, true);
    let first = public.split("## Comparison").next().unwrap();
    assert!(first.contains(&guarantee.to_string()) && !first.contains("75.00"), "{first}");
    assert!(!first.contains("attacker finds"), "{first}");
    // A single run is compared with the attacks on a non-private run, if they were made.
    let (_, markdown) = both(&runs[..1], false);
    let first = markdown.split("Certified interval").next().unwrap();
    assert!(first.contains("| Accuracy | private | 75.00 % |"), "{first}");
    assert!(first.contains("| membership | private | 0.500 |"), "{first}");
}

#[test]
fn folders_that_contradict_themselves_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let refused = |name: &str, about: &str, mode: Option<Mode>, change: &dyn Fn(&mut Value)| {
        let path = folder(place.path(), name, mode, change);
        let error = Run::open(&path).unwrap_err().to_string();
        assert!(error.contains(about) && !error.contains('\n'), "{name}: {error}");
    };
    let proved = Some(Mode::Proved);
    refused("smaller", "another guarantee", proved, &|s| {
        s["guarantee"]["epsilon"]["upper"] = json!(0.01)
    });
    refused("hash", "hash", proved, &|s| s["ledger_hash"] = json!("0000"));
    refused("none", "no guarantee", proved, &|s| s["guarantee"] = Value::Null);
    refused("seeded", "guarantees nothing", Some(Mode::Seeded), &|s| s["private"] = json!(true));
    refused("missing", "missing field `steps`", proved, &|s| {
        drop(s.as_object_mut().unwrap().remove("steps"))
    });
    let path = folder(place.path(), "cut", proved, |_| {});
    let text = fs::read_to_string(path.join("ledger.jsonl")).unwrap();
    let cut: String = text.lines().take(5).map(|line| format!("{line}\n")).collect();
    fs::write(path.join("ledger.jsonl"), cut).unwrap();
    assert!(Run::open(&path).unwrap_err().to_string().contains("cut off"));
    assert!(Run::open(place.path()).unwrap_err().to_string().contains("finished run"));
}

/// An audit that contradicts the ledger's ε removes the guarantee, in a public report as well.
#[test]
fn a_contradicted_guarantee_is_none() {
    let place = tempfile::tempdir().unwrap();
    let path = folder(place.path(), "run", Some(Mode::Proved), |_| {});
    let audit = fs::read_to_string(path.join("audit.json")).unwrap();
    for (from, to) in [
        ("\"epsilon_lower\":0.1", "\"epsilon_lower\":7.5"),
        ("\"epsilon_lower\":0.1", "\"epsilon_lower\":0.1,\"promised_curve_is_refuted\":true"),
    ] {
        assert!(audit.contains(from));
        fs::write(path.join("audit.json"), audit.replace(from, to)).unwrap();
        let run = Run::open(&path).unwrap();
        assert!(run.no_guarantee().unwrap().contains("canaries"));
        for public in [false, true] {
            let (html, _) = both(&[Run::open(&path).unwrap()], public);
            assert!(html.contains("No guarantee") && !html.contains("ε, proved"), "{to}");
        }
    }
}

/// A diverged run has non-finite figures, but still gets a report.
#[test]
fn figures_that_are_not_finite_are_shown_as_missing() {
    let place = tempfile::tempdir().unwrap();
    let path = folder(place.path(), "astray", Some(Mode::Proved), |s| {
        s["metrics"]["validation"]["loss"] = Value::Null
    });
    let (html, _) = both(&[Run::open(&path).unwrap()], false);
    assert!(html.contains("<dt>Loss</dt><dd>–</dd>") && !html.contains("NaN"));
}

/// A complete report, verbatim.
#[test]
fn a_report_in_markdown() {
    let place = tempfile::tempdir().unwrap();
    let path = folder(place.path(), "private", Some(Mode::Proved), |_| {});
    let run = Run::open(&path).unwrap();
    let (_, markdown) = both(&[run], false);
    assert_snapshot("report.md", &markdown);
}
