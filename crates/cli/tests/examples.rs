//! The commands of the examples' READMEs, on few rows and with a small model: examples/run.

use std::path::Path;
use std::process::Command;

fn runs(name: &str) {
    let python = Command::new("python3").args(["-c", "import tomllib"]).output();
    if !python.is_ok_and(|version| version.status.success()) {
        eprintln!("there is no Python 3.11 here: the example {name} is not run");
        return;
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let done = Command::new(examples.join("run"))
        .args([name, "--rows", "100", "--epochs", "1", "--binary"])
        .arg(env!("CARGO_BIN_EXE_undertone"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{printed}{}", String::from_utf8_lossy(&done.stderr));
    // The example runs exactly the commands it shows.
    let commands = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("$ ")).map(str::to_owned).collect()
    };
    let expected = std::fs::read_to_string(examples.join(name).join("expected.txt")).unwrap();
    assert_eq!(commands(&printed), commands(&expected));
}

#[test]
fn letters_are_classified() {
    runs("letters");
}

#[test]
fn a_chat_model_fills_in_forms() {
    runs("forms");
}

#[test]
fn a_language_model_of_mail_is_audited() {
    runs("email");
}

#[test]
fn a_sweep_chooses_epsilon() {
    runs("choose-epsilon");
}

#[test]
fn a_regulated_run_is_budgeted_reviewed_and_signed() {
    runs("regulated");
}
