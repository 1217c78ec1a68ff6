//! `scan`: counts, masks, redacted copies, and what it refuses.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn scan(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.current_dir(folder).arg("scan").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const ROWS: &str = "who,note\nLouise Kitchen,\"call +1 713 853 7000, \"\"now\"\"\"\n\
                    x,louise@example.org and 4111 1111 1111 1111\nx,louise@example.org\ny,nothing\n";

#[test]
fn kinds_are_counted_and_masked() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rows.csv"), ROWS).unwrap();
    let output = scan(folder.path(), &["rows.csv"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("for the data owner only") && printed.contains("4 rows"), "{printed}");
    assert!(printed.contains("L••••• K••••••"), "{printed}");
    for hidden in ["Louise", "Kitchen", "louise", "example.org", "853", "4111"] {
        assert!(!printed.contains(hidden), "{hidden}: {printed}");
    }
    let output = scan(folder.path(), &["rows.csv", "--json", "--examples", "0"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |kind: &str| {
        let all = answer["found"].as_array().unwrap();
        let of = all.iter().find(|of| of["kind"] == kind).unwrap();
        ["found", "distinct", "rows"].map(|count| of[count].as_u64().unwrap())
    };
    assert_eq!((of("email"), of("person"), of("card")), ([2, 1, 2], [1, 1, 1], [1, 1, 1]));
    assert_eq!(answer["rows"], 4);
    let only = ["rows.csv", "--json", "--columns", "note", "--kind", "person,email"];
    let answer: Value = serde_json::from_slice(&scan(folder.path(), &only).stdout).unwrap();
    assert_eq!(answer["found"].as_array().unwrap().len(), 1, "{answer}");
}

#[test]
fn a_redacted_copy_differs_in_what_was_found_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rows.csv"), ROWS).unwrap();
    let output = scan(folder.path(), &["rows.csv", "--redact", "copy.csv"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("is no anonymous data"));
    let copy = fs::read_to_string(folder.path().join("copy.csv")).unwrap();
    let expected = "who,note\n[PERSON],\"call [PHONE], \"\"now\"\"\"\nx,[EMAIL] and [CARD]\n\
                    x,[EMAIL]\ny,nothing\n";
    assert_eq!(copy, expected);
    let again = scan(folder.path(), &["copy.csv"]);
    assert!(text(&again.stdout).contains("Nothing was found in 4 rows"));
}

#[test]
fn mistakes_are_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rows.csv"), ROWS).unwrap();
    fs::write(folder.path().join("other.csv"), ROWS).unwrap();
    fs::write(folder.path().join("open.csv"), "a\n\"b\n").unwrap();
    for (arguments, about) in [
        (&["rows.csv", "--columns", "text"][..], "no column \"text\""),
        (&["missing.csv"], "does not exist"),
        (&["rows.csv", "--redact", "rows.csv"], "is an input file"),
        (&["rows.csv", "--redact", "other.csv"], "was written by something else"),
        (&["rows.csv", "--redact", "copy.jsonl"], "same extension"),
        (&["rows.csv", "--redact", "copy.csv.gz"], "uncompressed"),
        (&["*.csv", "--redact", "copy.csv"], "copies one file"),
        (&["open.csv"], ":2: a quoted field is never closed"),
        (&["open.csv", "--redact", "copy.csv"], ":2: a quoted field is never closed"),
        (&["rows.csv", "--kind", "phones"], "invalid value"),
    ] {
        let output = scan(folder.path(), arguments);
        let problem = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {problem}");
        assert!(problem.contains(about), "{arguments:?}: {problem}");
        assert!(!folder.path().join("copy.csv").exists());
    }
}
