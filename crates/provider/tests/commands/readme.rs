//! Runs the commands of this crate's README.

use super::world::program;
use crate::bench::Bench;
use std::fs;
use std::path::Path;

/// The README's task file, for the small model.
const TASK: &str = r#"[model]
path = "model"
tuning = "head"
[data]
text = "sentence"
labels = ["bad", "neutral", "good"]
max_tokens = 16
[privacy]
method = "ew-ft"
epsilon = 8.0
delta = 1e-5
[privacy.local]
public = { file = "public.jsonl", text = ["text"] }
"#;

#[test]
fn commands_of_the_readme_run() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let bench = Bench::classifier();
    fs::write(bench.path("task.toml"), TASK).unwrap();
    let line = |i: usize| format!("{{\"text\": \"the cat sat {}\"}}\n", "today ".repeat(i % 5));
    fs::write(bench.path("public.jsonl"), (0..60).map(line).collect::<String>()).unwrap();
    let text = fs::read_to_string(page).unwrap();
    let commands = text.lines().filter_map(|line| line.strip_prefix("    undertone-provider "));
    let mut count = 0;
    for command in commands {
        // Without redirections.
        let command = command.split(" > ").next().unwrap();
        let words: Vec<&str> = command.split_whitespace().collect();
        let output = program(&words).current_dir(bench.path("")).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {error}");
        count += 1;
    }
    assert!(count >= 4, "only {count} commands were found");
}
