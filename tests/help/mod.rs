//! The help of every verb of a program. Verbs are discovered by walking through the help itself, so
//! that a new one cannot be forgotten.

use crate::snapshot::{assert_files, assert_snapshot};
use std::process::{Command, Stdio};

/// The help of a verb, formatted as for a pipe.
fn help(program: &str, verb: &[String]) -> String {
    let output = Command::new(program)
        .args(verb)
        .arg("--help")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs listed in a help text: the lines below "Commands:" with an indentation of two spaces.
pub fn verbs(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines =
        lines.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let first = lines.filter(|line| !line.starts_with(' ')).map(|line| line.split(' ').next());
    first.flatten().filter(|verb| *verb != "help").map(str::to_owned).collect()
}

/// All verbs with their help, the program itself first.
pub fn all(program: &str) -> Vec<(Vec<String>, String)> {
    let mut all = vec![(Vec::new(), help(program, &[]))];
    let mut next = 0;
    while let Some((verb, help)) = all.get(next) {
        let inside: Vec<Vec<String>> =
            verbs(help).into_iter().map(|name| [&verb[..], &[name]].concat()).collect();
        all.extend(inside.into_iter().map(|verb| (verb.clone(), self::help(program, &verb))));
        next += 1;
    }
    all
}

/// Fails unless every verb's help equals its snapshot. `name` is the program's name.
#[track_caller]
pub fn assert_help(name: &str, all: &[(Vec<String>, String)]) {
    let file = |verb: &[String]| match verb {
        [] => format!("{name}.txt"),
        verb => verb.join("-") + ".txt",
    };
    for (verb, help) in all {
        assert_snapshot(&format!("help/{}", file(verb)), help);
    }
    assert_files("help", &all.iter().map(|(verb, _)| file(verb)).collect::<Vec<_>>());
}
