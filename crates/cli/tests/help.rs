//! The help of every verb. Verbs are found by walking through the help itself, so that a new one
//! cannot be forgotten.

use crate::snapshot::{assert_files, assert_snapshot};
use std::process::{Command, Stdio};

/// The help of a verb, as wide as in a pipe.
fn help(verb: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(verb)
        .arg("--help")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs that a help names: the lines below "Commands:" that are indented by two blanks.
fn verbs(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines =
        lines.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let first = lines.filter(|line| !line.starts_with(' ')).map(|line| line.split(' ').next());
    first.flatten().filter(|verb| *verb != "help").map(str::to_owned).collect()
}

/// All verbs with their help, the program itself first.
fn all() -> Vec<(Vec<String>, String)> {
    let mut all = vec![(Vec::new(), help(&[]))];
    let mut next = 0;
    while let Some((verb, help)) = all.get(next) {
        let inside: Vec<Vec<String>> =
            verbs(help).into_iter().map(|name| [&verb[..], &[name]].concat()).collect();
        all.extend(inside.into_iter().map(|verb| (verb.clone(), self::help(&verb))));
        next += 1;
    }
    all
}

#[test]
fn every_verb_says_what_it_does() {
    let all = all();
    assert!(all.len() > 25, "only {} verbs were found", all.len());
    let file = |verb: &[String]| match verb {
        [] => "undertone.txt".to_owned(),
        verb => verb.join("-") + ".txt",
    };
    for (verb, help) in &all {
        assert_snapshot(&format!("help/{}", file(verb)), help);
    }
    assert_files("help", &all.iter().map(|(verb, _)| file(verb)).collect::<Vec<_>>());
}

/// But for the demo, which needs no argument, and the benchmarks, which are for developers.
#[test]
fn every_verb_has_an_example() {
    for (verb, help) in all().iter().filter(|(_, help)| verbs(help).is_empty()) {
        let needs_none = ["demo", "bench"].contains(&verb[0].as_str());
        assert!(needs_none || help.contains("Example"), "{verb:?}: {help}");
    }
}
