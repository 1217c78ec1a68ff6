//! `sign` and `verify`: a card's ε is tied to the weights, and every difference is named.

use crate::bench::*;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn undertone(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = undertone(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_signature_covers_weights_card_ledger_and_report() {
    let bench = Bench::classifier();
    let folder = bench.folder.path();
    bench.train("run", &["--set", "training.epochs=1"]);
    done(folder, &["sign", "--new-key", "own.key"]);
    done(folder, &["report", "run", "--out", "private.html"]);
    done(folder, &["report", "run", "--public", "--out", "report.html"]);
    let signing = ["sign", "run", "--key", "own.key", "--report"];
    refused(&undertone(folder, &[&signing[..], &["private.html"]].concat()), "report --public");
    refused(&undertone(folder, &[&signing[..], &["run.toml"]].concat()), "is not a report");
    done(folder, &[&signing[..], &["report.html"]].concat());
    let check = ["verify", "run", "--key", "own.key.pub", "--report", "report.html"];
    let said = done(folder, &check);
    assert!(
        said.contains(", 1e-3)-differential privacy for adding or removing one example"),
        "{said}"
    );
    assert!(said.contains("ledger, plan, report, summary"), "{said}");
    // In another place, with only the weights and the key itself.
    let key = fs::read_to_string(bench.path("own.key.pub")).unwrap();
    let key = key.lines().nth(1).unwrap();
    Command::new("cp")
        .arg("-r")
        .arg(bench.path("run/model"))
        .arg(bench.path("copy"))
        .status()
        .unwrap();
    let said = done(folder, &["verify", "copy", "--key", key]);
    assert!(said.contains("not checked, not here  ledger, plan, report, summary"), "{said}");
    // Each difference is reported by name.
    let edit = |file: &str, to: &str| {
        let path = bench.path(file);
        let text = fs::read(&path).unwrap();
        fs::write(&path, [&text[..], to.as_bytes()].concat()).unwrap();
        text
    };
    let card = edit("copy/README.md", "ε = 1\n");
    fs::write(bench.path("copy/pytorch_model.bin"), "other weights").unwrap();
    fs::remove_file(bench.path("copy/config.json")).unwrap();
    let verify = ["verify", "copy", "--key", key];
    let differing = "README.md differs; config.json is missing; pytorch_model.bin was added";
    refused(&undertone(folder, &verify), differing);
    fs::remove_file(bench.path("copy/pytorch_model.bin")).unwrap();
    fs::write(bench.path("copy/README.md"), card).unwrap();
    fs::copy(bench.path("run/model/config.json"), bench.path("copy/config.json")).unwrap();
    done(folder, &verify);
    let report = edit("report.html", "<p>ε = 1</p>");
    refused(&undertone(folder, &check), "report (report.html) differs");
    fs::write(bench.path("report.html"), report).unwrap();
    let manifest = "copy/undertone.manifest.json";
    let text = String::from_utf8(bench.bytes(manifest)).unwrap();
    fs::write(bench.path(manifest), text.replace("0.001", "0.0001")).unwrap();
    refused(&undertone(folder, &verify), "was changed after it was signed");
    done(folder, &["sign", "--new-key", "other.key"]);
    let other = ["verify", "run", "--key", "other.key.pub"];
    refused(&undertone(folder, &other), "was made with the key");
    refused(&undertone(folder, &["sign", "--new-key", "own.key"]), "exists already");
    refused(&undertone(folder, &["sign", "run", "--key", "own.key.pub"]), "is not a secret key");
    refused(&undertone(folder, &["verify", "run", "--key", "none"]), "is not a public key");
    refused(&undertone(folder, &["sign", "none", "--key", "own.key"]), "none");
}
