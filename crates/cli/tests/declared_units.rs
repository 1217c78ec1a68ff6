//! `privacy.units`: nothing shareable depends on the true number of units.

use crate::bench::*;
use std::fs;

const DECLARED: [&str; 4] = ["--set", "privacy.units=100", "--unset", "data.validation"];

fn text(bench: &Bench, file: &str) -> String {
    String::from_utf8(bench.bytes(file)).unwrap()
}

#[test]
fn rate_divisor_and_steps_come_from_the_declaration() {
    let bench = Bench::classifier();
    let summary = bench.train("declared", &DECLARED);
    let resolved = &summary["resolved"];
    assert_eq!(resolved["units"], 100);
    assert_eq!(resolved["sampling_rate"], 0.2);
    assert_eq!(resolved["steps_per_epoch"], 5);
    let assumption = "the number of units in the training file";
    let ledger = text(&bench, "declared/ledger.jsonl");
    assert!(!ledger.contains(assumption), "{ledger}");
    for file in ["plan.toml", "ledger.jsonl", "model/README.md", "model/config.json"] {
        let content = text(&bench, &format!("declared/{file}"));
        // Hashes and ids are hexadecimal and may contain any digits.
        let words = content.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
        let reveals_count = words.filter(|word| word.len() < 32).any(|word| word.contains("120"));
        assert!(!reveals_count, "{file}: {content}");
    }
    // Without the key, nothing changes.
    let summary = bench.train("counted", &DECLARED[2..]);
    assert_eq!(summary["resolved"]["units"], 120);
    assert!(text(&bench, "counted/ledger.jsonl").contains(assumption));
}

/// Two data sets of different sizes have the same ledger, except for its random id.
#[test]
fn the_ledger_of_more_rows_is_the_same() {
    let bench = Bench::classifier();
    let seeded = [&DECLARED[..], &["--set", "training.seed=3"]].concat();
    bench.train("before", &seeded);
    let rows = text(&bench, "rows.tsv") + "the cat\tgood\tperson 99\nthe sun\tbad\tperson 99\n";
    fs::write(bench.path("rows.tsv"), rows).unwrap();
    bench.train("after", &seeded);
    for file in ["ledger.jsonl", "plan.toml", "model/README.md"] {
        let of = |run: &str| text(&bench, &format!("{run}/{file}"));
        assert_eq!(of("before"), of("after"), "{file}");
    }
}

/// The number of unreadable rows is private as well.
#[test]
fn skipped_rows_are_private_under_a_declaration() {
    let bench = Bench::classifier();
    let rows = text(&bench, "rows.tsv") + "torn\na\tb\tc\td\te\n";
    fs::write(bench.path("rows.tsv"), rows).unwrap();
    let skip = [&DECLARED[..], &["--set", "data.on_bad_row=skip"]].concat();
    bench.train("skipping", &skip);
    assert!(!text(&bench, "skipping/summary.json").contains("skipped_rows"));
    assert!(text(&bench, "skipping/private/summary.json").contains("\"skipped_rows\": 2"));
    bench.train("counting", &skip[2..]);
    assert!(text(&bench, "counting/summary.json").contains("\"skipped_rows\": 2"));
}

#[test]
fn a_declaration_that_cannot_be_is_refused() {
    let bench = Bench::classifier();
    let with = |value: &'static str| ["--set", value];
    bench.refused("zero", &with("privacy.units=0"), "privacy.units is 0, but must be from 1");
    bench.refused("few", &with("privacy.units=10"), "batch");
    let local = ["--set", "privacy.method=dp-forward", "--set", "privacy.units=100"];
    bench.refused("local", &local, "privacy.units is for gradient methods");
}

#[test]
fn a_declaration_far_from_the_truth_is_a_warning() {
    let bench = Bench::classifier();
    let far = ["--set", "privacy.units=1000"];
    let output = bench.command("far", &far).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let warning = "the training file has 120 examples, but privacy.units declares 1000";
    assert!(output.status.success() && said.contains(warning), "{said}");
    assert!(said.contains("120 examples, 1000 examples declared"), "{said}");
}

#[test]
fn init_declares_the_number_of_units() {
    let bench = Bench::classifier();
    let init = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_undertone"));
        command.current_dir(bench.folder.path());
        command.args(["init", "rows.tsv", "--model", "./model", "--no-author", "--force"]);
        let output = command.args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        text(&bench, "run.toml")
    };
    let declared = init(&["--units", "90"]);
    assert!(declared.contains("units = 90") && !declared.contains("120"), "{declared}");
    let offered = init(&[]);
    assert!(offered.contains("# units = 100"), "{offered}");
}
