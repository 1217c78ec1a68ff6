//! Runs examples/provider/run with a small model and few rows.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn owners_and_a_provider_meet_on_one_machine() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("there is no Python here: the example is not run");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fixtures = root.join("crates/undertone/tests/fixtures");
    let model = tempfile::tempdir().unwrap();
    for (folder, file) in [
        ("models/bert-classification", "config.json"),
        ("models/bert-classification", "model.safetensors"),
        ("tokenizer-wordpiece", "tokenizer.json"),
    ] {
        fs::copy(fixtures.join(folder).join(file), model.path().join(file)).unwrap();
    }
    let done = Command::new(root.join("examples/provider/run"))
        .args(["--owners", "3", "--rows", "60", "--small"])
        .arg(model.path())
        .args(["--provider", env!("CARGO_BIN_EXE_undertone-provider")])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{printed}{}", String::from_utf8_lossy(&done.stderr));
    assert!(printed.contains("60 texts of 3 owners were contributed"), "{printed}");
}
