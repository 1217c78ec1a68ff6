//! `budget ledger` on one or several run folders, and the total cost of runs on the same data in
//! reports and sweeps.

use crate::bench::*;
use serde_json::Value;
use std::process::{Command, Output};
use undertone_accounting::ledger::Ledger;
use undertone_accounting::rounded_up;

fn undertone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap()
}

#[test]
fn ledgers_are_read_by_folder_at_their_own_delta_and_added_up() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    let short = ["--set", "training.epochs=1"];
    let set = |more: &'static str| [&short[..], &["--set", more]].concat();
    bench.train("one", &short);
    bench.train("two", &set("privacy.epsilon=2"));
    bench.train("users", &[&set("data.author=who")[..], &["--set", "training.batch=10"]].concat());
    bench.train("smaller", &set("privacy.delta=1e-4"));
    let open = ["--set", "privacy.method=none", "--unset", "privacy.epsilon"];
    bench.train("open", &[&open[..], &["--unset", "privacy.delta"], &short].concat());
    let at = |name: &str| bench.path(name).to_str().unwrap().to_owned();
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_slice(&run(&[&["budget", "ledger", "--json"], arguments].concat()))
            .unwrap()
    };
    // The run's own δ, by folder and by file.
    for path in [at("one"), at("one/ledger.jsonl")] {
        let answer = json(&[&path]);
        assert_eq!(answer["guarantee"]["delta"], 1e-3);
        assert!(answer["guarantee"]["epsilon"]["upper"].as_f64().unwrap() <= 8.0);
    }
    assert_eq!(json(&[&at("one"), "--delta", "1e-5"])["guarantee"]["delta"], 1e-5);
    let answer = json(&[&at("one"), &at("two")]);
    let ledgers = [at("one/ledger.jsonl"), at("two/ledger.jsonl")];
    let ledgers = ledgers.map(|path| Ledger::read(path).unwrap());
    let total = Ledger::together(&[&ledgers[0], &ledgers[1]], 1e-3).unwrap();
    assert_eq!(answer["together"]["epsilon"]["upper"].as_f64(), Some(total.epsilon.upper));
    assert!((8.0..10.0).contains(&total.epsilon.upper), "{total}");
    let said = String::from_utf8(run(&["budget", "ledger", &at("one"), &at("two")])).unwrap();
    assert!(said.contains("together") && said.contains(&format!("{total}.")), "{said}");
    for (more, about) in [
        (&[at("one"), at("users")][..], "another data.author"),
        (&[at("one"), at("one/ledger.jsonl")], "given twice"),
        (&[at("one"), at("smaller")], "give --delta"),
        (&[at("open")], "holds no ledger"),
    ] {
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        refused(&undertone(&[&["budget", "ledger"], &more[..]].concat()), about);
    }
    sentences.assert("ledgers");
    // A report on both states the same.
    let out = at("report.md");
    run(&["report", &at("one"), &at("two"), &at("open"), "--out", &out]);
    let report = String::from_utf8(bench.bytes("report.md")).unwrap();
    assert!(report.contains("trained on the same file"), "{report}");
    assert!(report.contains(&rounded_up(total.epsilon.upper)), "{report}");
}

/// A ledger without a run does not know its δ, and no value is assumed.
#[test]
fn a_ledger_without_a_run_asks_for_delta() {
    use undertone_accounting::ledger::Terms;
    use undertone_accounting::{Adjacency, Event, Mode, Part, Threat, Unit};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("said.ledger.jsonl");
    let event = Event::Gaussian { noise_multiplier: 2.0, sensitivity: 2.0 };
    let terms = Terms {
        id: "1".into(),
        run: None,
        unit: Unit::Example,
        adjacency: Adjacency::ReplaceOne,
        threat: Threat::Local,
        mode: Mode::Proved,
        assumptions: Vec::new(),
        announced: vec![Part { event, count: 1 }],
    };
    Ledger::create(&path, terms).unwrap().append(event, 1).unwrap();
    let path = path.to_str().unwrap();
    refused(&undertone(&["budget", "ledger", path]), "give --delta");
    assert!(undertone(&["budget", "ledger", path, "--delta", "1e-6"]).status.success());
}

/// Someone who stops a run may have looked at its releases, in which case the plan's ε counts.
#[test]
fn a_stopped_run_states_the_cost_of_its_plan_too() {
    let bench = Bench::classifier();
    let slow = ["--set", "training.epochs=100"];
    assert!(bench.kill_after("run", &slow, 3), "it was too fast to be killed");
    bench.train("whole", &["--set", "training.epochs=1"]);
    let at = |name: &str| bench.path(name).to_str().unwrap().to_owned();
    let said = |more: &[&str]| -> Value {
        serde_json::from_slice(&run(&[&["budget", "ledger", "--json"], more].concat())).unwrap()
    };
    let upper = |guarantee: &Value| guarantee["epsilon"]["upper"].as_f64().unwrap();
    let stopped = said(&[&at("run")]);
    assert_eq!(stopped["planned_entries"], 600);
    // The plan was calibrated to ε = 8.
    let (taken, planned) = (upper(&stopped["guarantee"]), upper(&stopped["guarantee_of_plan"]));
    assert!(planned > 7.9 && planned <= 8.0 && taken < 4.0, "{taken} of {planned}");
    let text = String::from_utf8(run(&["budget", "ledger", &at("run")])).unwrap();
    assert!(text.contains("of 600 planned") && text.contains("ε of the plan"), "{text}");
    assert!(text.contains("the ε of the whole plan counts: (7.9"), "{text}");
    assert!(said(&[&at("whole")])["guarantee_of_plan"].is_null());
    let both = said(&[&at("run"), &at("whole")]);
    let (taken, planned) = (upper(&both["together"]), upper(&both["together_as_planned"]));
    assert!(planned > 10.0 && taken < planned, "{taken} of {planned}");
    let text = String::from_utf8(run(&["budget", "ledger", &at("run"), &at("whole")])).unwrap();
    assert!(text.contains("together, as planned"), "{text}");
}
