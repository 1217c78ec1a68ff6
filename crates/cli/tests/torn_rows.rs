//! Malformed rows of a data file.

use crate::bench::*;
use std::fs;

/// QQP as published by GLUE has malformed rows.
#[test]
fn torn_rows_are_refused_or_counted() {
    let bench = Bench::classifier();
    let rows = fs::read_to_string(bench.path("rows.tsv")).unwrap();
    let mut lines: Vec<&str> = rows.lines().collect();
    // At the beginning, in the middle, and a row whose text contains a line break.
    lines.insert(1, "torn");
    lines.insert(60, "a\tb\tc\td");
    lines.insert(90, "the cat");
    lines.insert(91, "sat\tgood\tperson 3");
    lines.insert(92, "sat\tgood");
    let torn = bench.path("torn.tsv");
    fs::write(&torn, lines.join("\n")).unwrap();
    let train = format!("data.train={torn:?}");
    let output = bench.command("no", &["--set", &train]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(":2: the row has 1 fields"), "{said}");
    let skip = ["--set", &train, "--set", "data.on_bad_row=skip"];
    let output = bench.command("said", &skip).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("were skipped: 4"), "{said}");
    let summary = bench.train("run", &skip);
    assert_eq!((&summary["skipped_rows"], &summary["resolved"]["units"]), (&4.into(), &121.into()));
    let ledger = fs::read_to_string(bench.path("run/ledger.jsonl")).unwrap();
    assert!(ledger.contains("skipped rows of the training file (4)"), "{ledger}");
    let whole = bench.train("whole", &["--set", "data.on_bad_row=skip"]);
    assert!(whole.get("skipped_rows").is_none());
    // That no row was skipped is also information about the data.
    let ledger = fs::read_to_string(bench.path("whole/ledger.jsonl")).unwrap();
    assert!(ledger.contains("skipped rows of the training file (0)"), "{ledger}");
    let parquet = ["--set", "data.train=a.parquet", "--set", "data.on_bad_row=skip"];
    let output = bench.command("no", &parquet).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("data.on_bad_row is for TSV, CSV and JSON Lines"), "{said}");
}
