//! Notes that `train` prints before it begins. No file contains counts of private rows.

use crate::bench::*;
use std::fs;

fn said(bench: &Bench, out: &str, more: &[&str]) -> String {
    let output = bench.command(out, more).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn silent_decisions_are_said() {
    let bench = Bench::new(
        "bert-classification",
        "tokenizer-wordpiece",
        "task = \"classification\"\nauthor = \"who\"\nmost_per_author = 2",
    );
    // 40 people with three rows each, a typo, and two rows without text.
    let rows = String::from_utf8(bench.bytes("rows.tsv")).unwrap();
    let rows = rows.replacen("\tbad\t", "\tbda\t", 1) + "\tgood\tperson 77\n  \tbad\tperson 78\n";
    fs::write(bench.path("rows.tsv"), rows).unwrap();
    // A pretrained classifier has its own labels.
    let config = String::from_utf8(bench.bytes("model/config.json")).unwrap();
    let config = config.replace("ForSequenceClassification", "Model");
    fs::write(bench.path("model/config.json"), config).unwrap();
    let more = ["--set", "training.batch=10", "--set", "training.epochs=1"];
    let printed = said(&bench, "run", &[&more[..], &["--set", "privacy.delta=0.1"]].concat());
    for line in [
        "3 classes found in the training file: bad, bda, good; a typo becomes a class",
        "40 rows left out, from authors with more than 2 examples (data.most_per_author)",
        "warning: 2 rows without text",
        "warning: δ = 1e-1 is not below 1/42: it would allow publishing one of the 42 users in full; choose a smaller one",
        "82 examples of 42 users, ",
    ] {
        assert!(printed.contains(line), "{printed}");
    }
    // The counts come from private rows: only the curator sees them.
    for file in ["summary.json", "plan.toml", "ledger.jsonl", "model/README.md"] {
        let text = String::from_utf8(bench.bytes(&format!("run/{file}"))).unwrap();
        assert!(
            !text.contains("left out, from authors") && !text.contains("without text"),
            "{file}"
        );
    }
}

#[test]
fn noise_without_hope_is_a_warning() {
    let bench = Bench::classifier();
    let little = ["--set", "privacy.epsilon=0.2", "--set", "training.batch=2"];
    let printed =
        said(&bench, "hopeless", &[&little[..], &["--set", "training.epochs=1"]].concat());
    assert!(printed.contains("will probably learn nothing"), "{printed}");
    assert!(printed.contains("120 examples, "), "{printed}");
    // A head with few parameters, in large batches, at an ε that protects little.
    let much = ["--set", "privacy.epsilon=50", "--set", "model.tuning=head"];
    let printed = said(&bench, "much", &[&much[..], &["--set", "training.batch=60"]].concat());
    assert!(!printed.contains("warning"), "{printed}");
}
