//! `undertone budget` as called by people and scripts.

use crate::bench::{Sentences, note_sentence};
use serde_json::Value;
use std::process::{Command, Output};

fn undertone(arguments: &str) -> Output {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap()
}

fn text(arguments: &str) -> String {
    let output = undertone(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &str) -> Value {
    serde_json::from_str(&text(&format!("{arguments} --json"))).unwrap()
}

fn upper(value: &Value) -> f64 {
    let e = &value["epsilon"];
    let [low, estimate, up] = ["lower", "estimate", "upper"].map(|k| e[k].as_f64().unwrap());
    assert!(low <= estimate && estimate <= up, "{value}");
    up
}

#[test]
fn epsilon_of_one_phase() {
    let asked = "budget epsilon --noise-multiplier 1.1 --sampling-rate 0.00426667 --steps 14063 \
     --delta 1e-5";
    let answer = json(asked);
    assert!((upper(&answer) - 2.3817).abs() < 2e-3, "{answer}");
    assert_eq!(answer["accountant"], "prv");
    assert_eq!(answer["adjacency"], "add-remove");
    assert_eq!(answer["delta"].as_f64(), Some(1e-5));
    assert!(text(asked).contains("differentially private for adding or removing one unit"));
}

#[test]
fn passes_over_the_data_stand_for_rate_and_steps() {
    let by_passes = json(
        "budget epsilon --noise-multiplier 0.8 --examples 67349 --batch 1024 --epochs 10 --delta \
         1e-5",
    );
    let rate = 1024.0 / 67_349.0;
    let by_steps = json(&format!(
        "budget epsilon --noise-multiplier 0.8 --sampling-rate {rate} --steps 650 --delta 1e-5"
    ));
    assert_eq!(by_passes["epsilon"], by_steps["epsilon"]);
}

#[test]
fn epsilon_of_phases_releases_and_responses() {
    let phases =
        json("budget epsilon --phase 0.6,0.000475,2104 --phase 0.5,0.000475,2104 --delta 1e-5");
    assert!((upper(&phases) - 2.5).abs() < 5e-3, "{phases}");
    let local =
        json("budget epsilon --noise-multiplier 0.39 --releases 3 --sensitivity 2 --delta 1e-5");
    assert!((upper(&local) - 76.5146).abs() < 1e-3, "{local}");
    assert_eq!(
        (&local["accountant"], &local["adjacency"]),
        (&"gaussian".into(), &"replace-one".into())
    );
    // Replacing moves a clipped vector by two norms, so 2 is the default there.
    let default = json("budget epsilon --noise-multiplier 0.39 --releases 3 --delta 1e-5");
    assert_eq!(default["epsilon"], local["epsilon"]);
    let label = json("budget epsilon --response 2,4 --delta 1e-5");
    assert!((upper(&label) - 2.0).abs() < 1e-4, "{label}");
    let both =
        json("budget epsilon --noise-multiplier 1.2 --releases 1 --response 2,2 --delta 1e-5");
    assert!(
        upper(&both)
            > upper(&json("budget epsilon --noise-multiplier 1.2 --releases 1 --delta 1e-5"))
    );
}

#[test]
fn accountants_by_name() {
    let asked = "budget epsilon --noise-multiplier 1.5 --sampling-rate 0.04 --steps 2250 --delta \
     1e-5 --accountant";
    let (prv, rdp, gdp) = (
        json(&format!("{asked} prv")),
        json(&format!("{asked} rdp")),
        json(&format!("{asked} gdp")),
    );
    assert!((upper(&rdp) - 7.329111).abs() < 1e-5, "{rdp}");
    assert!(upper(&prv) < upper(&rdp));
    assert_eq!((prv["certified"].as_bool(), gdp["certified"].as_bool()), (Some(true), Some(false)));
    assert!(text(&format!("{asked} gdp")).contains("not a guarantee"));
}

#[test]
fn noise_for_a_target() {
    let answer = json("budget noise --epsilon 8 --delta 1e-5 --sampling-rate 0.0152 --steps 650");
    assert!(upper(&answer) <= 8.0 && upper(&answer) > 7.99, "{answer}");
    let sigma = answer["noise_multiplier"].as_f64().unwrap();
    assert!((sigma - 0.6245).abs() < 1e-3, "{sigma}");
    let plain = json("budget noise --epsilon 8 --delta 1e-5 --releases 1 --sensitivity 2");
    let sigma = plain["noise_multiplier"].as_f64().unwrap();
    let back = json(&format!(
        "budget epsilon --noise-multiplier {sigma} --releases 1 --sensitivity 2 --delta 1e-5"
    ));
    assert!(upper(&back) <= 8.0 && upper(&back) > 7.999_999, "{back}");
}

#[test]
fn schedules() {
    let sst2 = "--epsilon 8 --delta 1e-5 --examples 67349 --batch 32 --epochs 3";
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("noise.svg");
    let answer = json(&format!(
        "budget schedule --method ewpba {sst2} --step-distance 2 --plot {}",
        svg.display()
    ));
    let list: Vec<f64> = answer["noise_multipliers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap())
        .collect();
    assert!(list.len() == 3 && list[0] > list[1] && list[1] > list[2], "{list:?}");
    assert!(answer["beginning"].as_f64().unwrap() > list[2]);
    assert!(upper(&answer) <= 8.0 && upper(&answer) > 7.999, "{answer}");
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(
        drawn.starts_with("<svg")
            && drawn.contains("polyline")
            && drawn.contains("noise multiplier")
    );
    for method in ["uniform", "linear", "exponential", "cosine", "step"] {
        let answer = json(&format!("budget schedule --method {method} {sst2}"));
        assert!(upper(&answer) <= 8.0 && answer.get("beginning").is_none(), "{answer}");
    }
    assert!(text(&format!("budget schedule {sst2}")).contains("beginning"));
}

#[test]
fn curves() {
    let what = "--noise-multiplier 1.1 --sampling-rate 0.00426667 --steps 1000";
    let folder = tempfile::tempdir().unwrap();
    let (curve_plot, roc_plot) = (folder.path().join("curve.svg"), folder.path().join("roc.svg"));
    let curve = json(&format!("budget curve {what} --points 8 --plot {}", curve_plot.display()));
    let deltas: Vec<f64> = curve["curve"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["delta"]["upper"].as_f64().unwrap())
        .collect();
    assert!(deltas.len() == 8 && deltas.windows(2).all(|d| d[0] > d[1]), "{deltas:?}");
    let roc = json(&format!("budget tradeoff {what} --points 8 --plot {}", roc_plot.display()));
    for point in roc["trade_off"].as_array().unwrap() {
        let [fpr, tpr] = [&point["false_positive_rate"], &point["true_positive_rate"]["upper"]]
            .map(|v| v.as_f64().unwrap());
        assert!(tpr >= fpr && tpr <= 1.0, "{point}");
    }
    assert!(std::fs::read_to_string(curve_plot).unwrap().contains("polyline"));
    assert!(std::fs::read_to_string(roc_plot).unwrap().contains("polyline"));
    assert!(text(&format!("budget delta {what} --epsilon 1")).contains('δ'));
    assert!(text(&format!("budget curve {what} --points 5")).contains("at most"));
}

/// A fraction of an epoch, and ε after each part of a run.
#[test]
fn a_run_may_be_counted_in_parts() {
    let of = |how: &str| {
        let what = format!("--noise-multiplier 1.0 --examples 1000 --batch 100 {how}");
        upper(&json(&format!("budget epsilon {what} --delta 1e-5")))
    };
    let steps = |steps: u64| {
        let what = format!("--noise-multiplier 1.0 --sampling-rate 0.1 --steps {steps}");
        upper(&json(&format!("budget epsilon {what} --delta 1e-5")))
    };
    assert_eq!(of("--epochs 2.5"), steps(25));
    assert_eq!(of("--epochs 3"), steps(30));
    assert_eq!(of("--epochs 0.01"), steps(1), "rounded up");
    assert_eq!(of("--epochs 2.31"), steps(24), "rounded up");
    let what = "--noise-multiplier 1.0 --examples 1000 --batch 100 --epochs 4";
    let answer = json(&format!("budget curve {what} --delta 1e-5"));
    let spent = answer["spending"].as_array().unwrap();
    assert_eq!(spent.len(), 10);
    for (i, point) in spent.iter().enumerate() {
        assert_eq!(point["releases"], 4 * (i as u64 + 1));
        assert_eq!(upper(point), steps(4 * (i as u64 + 1)));
    }
    let printed = text(&format!("budget curve {what} --delta 1e-5 --points 3"));
    let half = printed.lines().find(|line| line.contains("half-way, 50.0 %")).unwrap();
    assert!(half.contains("20"), "{printed}");
    refused(
        "budget epsilon --noise-multiplier 1 --examples 9 --batch 3 --epochs 0 --delta 1e-5",
        "above 0",
    );
    refused(&format!("budget curve {what} --delta 1e-5 --max-epsilon 2"), "--max-epsilon");
}

#[test]
fn the_demo_leaves_a_ledger_that_the_calculator_reads() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display();
    // An eighth of the letters: every part runs, and the accuracies are not checked.
    let said = text(&format!("demo --letters 512 --out {place}"));
    for part in ["sort-non-private", "sort-epsilon-8", "codes given away", "exposure of a code"] {
        assert!(said.contains(part), "{said}");
    }
    // Without privacy the model reveals codes; at ε = 8 it reveals none.
    let away = said.lines().find(|line| line.contains("codes given away")).unwrap();
    let numbers: Vec<usize> = away.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    assert!(numbers[0] >= 4 && numbers[2] == 0, "{away}");
    let report = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(report.contains("membership AUC") && report.contains("exposure, bits"));
    // The proposed next command works.
    let proposed = said.lines().find_map(|line| line.strip_prefix("Try: undertone ")).unwrap();
    let answers = folder.path().join("said.jsonl");
    text(&proposed.replace("said.jsonl", &answers.display().to_string()));
    assert_eq!(std::fs::read_to_string(answers).unwrap().lines().count(), 128);
    let path = folder.path().join("sort-epsilon-8/ledger.jsonl");
    let ledger = path.display();
    let answer = json(&format!("budget ledger {ledger}"));
    let e = answer["guarantee"]["epsilon"]["upper"].as_f64().unwrap();
    assert!(e <= 8.0 && e > 7.99, "{answer}");
    assert_eq!((answer["entries"].as_u64(), answer["torn_lines"].as_u64()), (Some(30), Some(0)));
    assert!(text(&format!("budget ledger {ledger}")).contains("proved"));
    // One modified digit.
    let changed =
        std::fs::read_to_string(&path).unwrap().replacen("\"count\":1}", "\"count\":2}", 2);
    std::fs::write(&path, changed).unwrap();
    refused(&format!("budget ledger {ledger}"), "ledger");
}

/// After a crash in the middle of a line, the ledger is read with a higher ε, and a warning says
/// so.
#[test]
fn a_torn_ledger_is_read_with_a_warning() {
    use undertone_accounting::ledger::{Ledger, Terms};
    use undertone_accounting::{Adjacency, Event, Mode, Part, Threat, Unit};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    let event = Event::Gaussian { noise_multiplier: 3.0, sensitivity: 1.0 };
    let terms = Terms {
        id: "torn".into(),
        unit: Unit::Example,
        adjacency: Adjacency::AddRemove,
        threat: Threat::Central,
        mode: Mode::Proved,
        assumptions: Vec::new(),
        announced: vec![Part { event, count: 5 }],
        run: None,
    };
    let mut ledger = Ledger::create(&path, terms).unwrap();
    ledger.append(event, 1).unwrap();
    let head = path.with_extension("jsonl.head");
    let before = std::fs::read(&head).unwrap();
    ledger.append(event, 1).unwrap();
    drop(ledger);
    let asked = format!("budget ledger {} --delta 1e-5 --json", path.display());
    let run = || {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_undertone"))
            .args(asked.split_whitespace())
            .output()
            .unwrap();
        assert!(output.status.success());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        (upper_of(&answer["guarantee"]), String::from_utf8(output.stderr).unwrap())
    };
    let (whole, said) = run();
    assert!(!said.contains("warning"), "{said}");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    std::fs::write(&head, before).unwrap();
    let (torn, said) = run();
    assert!(torn > whole, "{torn} {whole}");
    assert!(said.contains("warning: 1 line of") && said.contains("was cut off"), "{said}");
}

fn upper_of(guarantee: &Value) -> f64 {
    guarantee["epsilon"]["upper"].as_f64().unwrap()
}

/// Exit code 2, nothing on standard output, and one line that names the problem.
fn refused(arguments: &str, says: &str) {
    let output = undertone(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    note_sentence(&error);
    assert_eq!(output.status.code(), Some(2), "{arguments}: {error}");
    assert!(output.stdout.is_empty(), "{arguments}");
    assert!(
        error.starts_with("error: ") && error.trim_end().lines().count() == 1,
        "{arguments}: {error}"
    );
    assert!(error.contains(says), "{arguments}: {error}");
}

#[test]
fn mistakes_get_one_sentence_and_exit_code_2() {
    let sentences = Sentences::start();
    let sampled = "--sampling-rate 0.01 --steps 100";
    for (arguments, says) in [
        (format!("epsilon --noise-multiplier 1 {sampled} --delta 0"), "δ"),
        (format!("epsilon --noise-multiplier 1 {sampled} --delta 1"), "δ"),
        (format!("epsilon --noise-multiplier 1 {sampled} --delta 1.5"), "δ"),
        (format!("epsilon --noise-multiplier 1 {sampled} --delta -1"), "δ"),
        (format!("epsilon --noise-multiplier 1 {sampled} --delta NaN"), "δ"),
        (format!("epsilon --noise-multiplier 1 {sampled} --delta 1e-30"), "certified range"),
        (format!("epsilon --noise-multiplier 0 {sampled} --delta 1e-5"), "noise multiplier"),
        (format!("epsilon --noise-multiplier -1 {sampled} --delta 1e-5"), "noise multiplier"),
        (format!("epsilon --noise-multiplier NaN {sampled} --delta 1e-5"), "noise multiplier"),
        (format!("epsilon --noise-multiplier inf {sampled} --delta 1e-5"), "noise multiplier"),
        (
            format!(
                "epsilon --noise-multiplier 0.01 {sampled} --delta \
         1e-5"
            ),
            "between 0.05 and 1000",
        ),
        (format!("epsilon --noise-multiplier abc {sampled} --delta 1e-5"), "abc"),
        (
            "epsilon --noise-multiplier 1 --sampling-rate 1.1 --steps 10 --delta 1e-5".to_owned(),
            "sampling rate",
        ),
        (
            "epsilon --noise-multiplier 1 --sampling-rate 1e-9 --steps 10 --delta 1e-5".to_owned(),
            "at least 1e-7",
        ),
        (
            "epsilon --noise-multiplier 1 --sampling-rate 0.1 --steps 0 --delta \
         1e-5"
                .to_owned(),
            "at least 1",
        ),
        (
            "epsilon --noise-multiplier 1 --sampling-rate 0.1 --steps 99999999 --delta \
             1e-5"
                .to_owned(),
            "10,000,000",
        ),
        ("epsilon --noise-multiplier 1 --sampling-rate 0.1 --delta 1e-5".to_owned(), "--steps"),
        ("epsilon --noise-multiplier 1 --delta 1e-5".to_owned(), "--sampling-rate"),
        ("epsilon --delta 1e-5".to_owned(), "nothing is released"),
        (
            "epsilon --noise-multiplier 1 --examples 10 --batch 20 --epochs 1 --delta \
         1e-5"
                .to_owned(),
            "batch",
        ),
        ("epsilon --phase 1,2 --delta 1e-5".to_owned(), "SIGMA,Q,STEPS"),
        ("epsilon --response 0,2 --delta 1e-5".to_owned(), "randomized response"),
        ("epsilon --response 1,1 --delta 1e-5".to_owned(), "categories"),
        (
            "epsilon --noise-multiplier 0.05 --sampling-rate 0.5 --steps 100000 --delta \
             1e-5"
                .to_owned(),
            "exceeds ε = 1000",
        ),
        (
            "epsilon --noise-multiplier 1 --sampling-rate 0.1 --steps 9 --delta 1e-5 --accountant \
             magic"
                .to_owned(),
            "magic",
        ),
        (format!("noise --epsilon 0 --delta 1e-5 {sampled}"), "ε"),
        (format!("noise --epsilon -2 --delta 1e-5 {sampled}"), "ε"),
        (format!("noise --epsilon NaN --delta 1e-5 {sampled}"), "ε"),
        ("noise --epsilon 1 --delta 1e-5".to_owned(), "--sampling-rate"),
        (
            "noise --epsilon 0.001 --delta 1e-18 --sampling-rate 1e-1 --steps 10000000".to_owned(),
            "no noise multiplier",
        ),
        (
            "schedule --epsilon 1 --delta 1e-5 --examples 100 --batch 10 --epochs \
         3"
            .to_owned(),
            "reserve",
        ),
        (
            "schedule --epsilon 8 --reserve 8 --delta 1e-5 --examples 100 --batch 10 --epochs \
             3"
            .to_owned(),
            "reserve",
        ),
        (
            "schedule --epsilon 8 --delta 1e-5 --examples 100 --batch 10 --epochs 3 \
             --step-distance 0"
                .to_owned(),
            "step distance",
        ),
        (
            "schedule --epsilon 8 --delta 1e-5 --examples 0 --batch 10 --epochs \
         3"
            .to_owned(),
            "examples",
        ),
        (
            "schedule --method linear --ratio 0 --epsilon 8 --delta 1e-5 --examples 99 --batch 9 \
             --epochs 3"
                .to_owned(),
            "ratio",
        ),
        (format!("curve --noise-multiplier 1 {sampled} --points 1"), "points"),
        (format!("curve --noise-multiplier 1 {sampled} --max-epsilon -1"), "ε"),
        (format!("delta --noise-multiplier 1 {sampled} --epsilon 0"), "ε"),
        ("ledger no/such/file".to_owned(), "could not be read"),
    ] {
        refused(&format!("budget {arguments}"), says);
    }
    sentences.assert("budget");
}

#[test]
fn help_has_an_example_for_every_verb() {
    for verb in ["epsilon", "delta", "noise", "schedule", "curve", "tradeoff", "ledger"] {
        let help = text(&format!("budget {verb} --help"));
        assert!(help.contains("Example") && help.contains("--json"), "{verb}: {help}");
    }
}

/// Figure 2 of per-attribute MVG: an inverted bell for each shift and spread.
#[test]
fn budgets_of_tokens_are_drawn_and_have_noise() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("budgets.svg");
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command.args(["budget", "tokens"]).args(more).output().unwrap()
    };
    let plot = ["--spread", "0.2", "0.5", "--json", "--plot", chart.to_str().unwrap()];
    let output = run(&plot);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let curves = answer["curves"].as_array().unwrap();
    assert_eq!(curves.len(), 6);
    for curve in curves {
        let epsilon: Vec<f64> =
            curve["epsilon"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        assert_eq!(epsilon.len(), 64);
        let least = (0..64).min_by(|&i, &j| epsilon[i].total_cmp(&epsilon[j])).unwrap();
        // The position given by k: −1 is the first position, 1 the last.
        let place = (curve["shift"].as_f64().unwrap() + 1.0) / 2.0 * 63.0;
        assert!((least as f64 - place).abs() <= 1.0 && epsilon[least] == 1.0, "{curve}");
        assert!(epsilon.iter().all(|e| (1.0..=10.0).contains(e)));
        assert!(curve.get("noise_multipliers").is_none());
    }
    let drawn = std::fs::read_to_string(&chart).unwrap();
    assert!(drawn.contains("k = -0.5, v = 0.2") && drawn.contains("k = 0.5, v = 0.5"));
    let model = crate::bench::fixture("models").join("bert-classification");
    let sizes = ["--examples", "1000", "--batch", "20", "--epochs", "2", "--tokens", "9"];
    let uniform = ["--shift", "0", "--json", "--model", model.to_str().unwrap()];
    let output = run(&[&sizes[..], &uniform].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |value: &Value| -> Vec<f64> {
        value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let noise = list(&answer["curves"][0]["noise_multipliers"]);
    assert!(noise[4] > noise[0] && noise[4] > noise[8], "{noise:?}");
    let contributions = list(&answer["contributions"]);
    assert!((contributions.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{contributions:?}");
    // σ_t and the contributions as separate charts.
    for (of, shown) in [("noise", "Noise of tokens"), ("contribution", "Contributions of tokens")] {
        let drawn = ["--plot", chart.to_str().unwrap(), "--plot-of", of];
        let output = run(&[&sizes[..], &uniform, &drawn].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(std::fs::read_to_string(&chart).unwrap().contains(shown));
        assert_eq!(run(&drawn).status.code(), Some(2), "there is no {of} to draw");
    }
    for wrong in [&["--spread", "0"][..], &["--epsilon-min", "11"], &["--examples", "9"]] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
