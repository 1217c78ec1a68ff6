//! The help of every verb.

#[path = "../../../tests/help/mod.rs"]
mod walk;

use walk::{all, assert_help, verbs};

const PROGRAM: &str = env!("CARGO_BIN_EXE_undertone");

#[test]
fn every_verb_says_what_it_does() {
    let all = all(PROGRAM);
    assert!(all.len() > 25, "only {} verbs were found", all.len());
    assert_help("undertone", &all);
}

/// Except for the demo, which needs no argument, and the benchmarks, which are for developers.
#[test]
fn every_verb_has_an_example() {
    for (verb, help) in all(PROGRAM).iter().filter(|(_, help)| verbs(help).is_empty()) {
        let needs_none = ["demo", "bench"].contains(&verb[0].as_str());
        assert!(needs_none || help.contains("Example"), "{verb:?}: {help}");
    }
}
