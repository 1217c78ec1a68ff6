//! The help of every verb.

#[path = "../../../tests/help/mod.rs"]
mod walk;

use walk::{all, assert_help, verbs};

const PROGRAM: &str = env!("CARGO_BIN_EXE_undertone-provider");

#[test]
fn every_verb_says_what_it_does_and_has_an_example() {
    let all = all(PROGRAM);
    assert!(all.len() > 8, "only {} verbs were found", all.len());
    assert_help("undertone-provider", &all);
    for (verb, help) in all.iter().filter(|(_, help)| verbs(help).is_empty()) {
        assert!(help.contains("Example"), "{verb:?}: {help}");
    }
}
