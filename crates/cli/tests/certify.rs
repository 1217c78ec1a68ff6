//! `budget certify`, and the independent checker on its output.

use crate::bench::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn undertone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undertone")).args(arguments).output().unwrap()
}

/// The checker's output for a certificate; `None` without Python.
fn checked(certificate: &Path, more: &[&str]) -> Option<Output> {
    let checker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../checker/check_certificate.py");
    Command::new("python3").arg(checker).arg(certificate).args(more).output().ok()
}

fn said(output: &Output) -> String {
    let [out, wrong] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{wrong}")
}

#[test]
fn planned_releases_are_certified_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("certificate.json");
    let out = file.to_str().unwrap();
    let phases = ["--phase", "2,0.2,10", "--phase", "1.5,0.1,3", "--response", "0.5,3"];
    let begin = ["budget", "certify", "--out", out, "--json", "--delta", "1e-3"];
    let made: Value = serde_json::from_slice(&run(&[&begin[..], &phases].concat())).unwrap();
    let [epsilon, upper] = ["epsilon", "accountant_upper"].map(|key| made[key].as_f64().unwrap());
    assert!(epsilon > 0.99 * upper && epsilon < 1.01 * upper, "{made}");
    assert!(made["delta"].as_f64().unwrap() <= 1e-3, "{made}");
    let Some(output) = checked(&file, &[]) else { return };
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("valid: ("), "{}", said(&output));
    // The same numbers do not prove a smaller ε.
    let text = std::fs::read_to_string(&file).unwrap();
    let mut changed: Value = serde_json::from_str(&text).unwrap();
    changed["epsilon"] = format!("{:.5}", epsilon - 1e-5).into();
    std::fs::write(&file, changed.to_string()).unwrap();
    let output = checked(&file, &[]).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("refused: "), "{}", said(&output));
}

#[test]
fn a_run_is_certified_at_its_own_delta_against_its_ledger() {
    let sentences = Sentences::start();
    let bench = Bench::classifier();
    bench.train("run", &["--set", "training.epochs=1"]);
    let seeded = ["--set", "training.epochs=1", "--seed", "5"];
    bench.train("seeded", &seeded);
    let (run_folder, file) = (bench.path("run"), bench.path("certificate.json"));
    let [run_folder, out] = [&run_folder, &file].map(|path| path.to_str().unwrap());
    let text = String::from_utf8(run(&["budget", "certify", run_folder, "--out", out])).unwrap();
    assert!(text.contains("check_certificate.py"), "{text}");
    let written: Value = serde_json::from_slice(&bench.bytes("certificate.json")).unwrap();
    assert!(written["epsilon"].as_str().unwrap().parse::<f64>().unwrap() < 8.08, "{written}");
    let ledger = bench.path("run/ledger.jsonl");
    let ledger = ledger.to_str().unwrap();
    if let Some(output) = checked(&file, &["--ledger", ledger]) {
        assert!(output.status.success(), "{}", said(&output));
    }
    // An earlier certificate may be overwritten, other files may not, and a run without a guarantee
    // is refused.
    run(&["budget", "certify", ledger, "--out", out, "--epsilon", "9"]);
    let seeded = bench.path("seeded");
    let rows: PathBuf = bench.path("rows.tsv");
    for (arguments, about) in [
        (&[run_folder, "--out", rows.to_str().unwrap()][..], "rows.tsv"),
        (&[run_folder, "--out", ledger], "ledger.jsonl"),
        (&[seeded.to_str().unwrap(), "--out", out], "no guarantee to certify"),
        (&["--noise-multiplier", "1", "--releases", "1", "--out", out], "pass --delta"),
        (&["--out", out, "--delta", "1e-5"], "nothing is released"),
        (&[run_folder, "--out", out, "--delta", "2"], "δ"),
        (
            &["--noise-multiplier", "0.001", "--releases", "1", "--out", out, "--delta", "1e-5"],
            "exceeds ε = 1000",
        ),
    ] {
        refused(&undertone(&[&["budget", "certify"], arguments].concat()), about);
    }
    let both = undertone(&["budget", "certify", run_folder, "--out", out, "--phase", "1,0.1,5"]);
    assert_eq!(both.status.code(), Some(2), "{}", said(&both));
    sentences.assert("certify");
}
