//! Missing keys of a run file, all reported together.

use super::applies::find;
use super::{AutoKey, MethodName, ModeName, RunFile, TaskName};
use toml::{Table, Value};

/// Keys required in every run file, each with a placeholder that lets the rest be parsed.
const REQUIRED: [(&str, &str); 2] = [("data.task", "classification"), ("data.train", "-")];
/// Placeholders for the numbers that the recipe chooses.
const NUMBERS: [(&str, f64); 3] =
    [("training.epochs", 1.0), ("training.batch", 1.0), ("training.learning_rate", 1.0)];

/// Inserts placeholders for missing required keys.
pub(super) fn fill_in(table: &mut Table) {
    for (path, value) in REQUIRED {
        insert(table, path, Value::String(value.to_owned()));
    }
    for (path, value) in NUMBERS {
        let whole = path != "training.learning_rate";
        insert(table, path, if whole { Value::Integer(1) } else { Value::Float(value) });
    }
    for section in ["model", "privacy"] {
        table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    }
}

fn insert(table: &mut Table, path: &str, value: Value) {
    let Some((section, key)) = path.split_once('.') else { return };
    let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    // A value in place of a section is reported as a separate error.
    if let Value::Table(section) = section {
        section.entry(key).or_insert(value);
    }
}

/// The required keys that are missing from `table`, as written. `file` was parsed with
/// placeholders, and `absent` lists the recipe's keys that the file omits.
pub(super) fn missing(table: &Table, file: &RunFile, absent: &[AutoKey]) -> Vec<&'static str> {
    let has = |path: &str| find(table, path).is_some();
    let mut missing = Vec::new();
    if !has("model.path") && !has("model.hub") {
        missing.push("model.path (a folder) or model.hub (a name)");
    }
    if !has("data.task") {
        missing.push(
            "data.task (classification, language-modeling, masked-language-modeling, completion \
             or chat)",
        );
    }
    if !has("data.train") {
        missing.push("data.train (the private file)");
    }
    let completes = [TaskName::Completion, TaskName::Chat].contains(&file.data.task)
        || (!has("data.task") && (has("data.prompt") || has("data.completion")));
    if !completes && !has("data.text") {
        missing.push("data.text (the column of the text)");
    }
    let privacy = &file.privacy;
    let published_mvg = privacy.method == MethodName::Mvg && privacy.mode == ModeName::Paper;
    let has_budget = privacy.epsilon.is_some()
        || privacy.noise_multiplier.is_some()
        || privacy.noise_multipliers.is_some();
    if privacy.method != MethodName::None && !published_mvg && !has_budget {
        missing.push("privacy.epsilon (such as 8)");
    }
    let needed = |key: &&AutoKey| {
        let applies = **key != AutoKey::Delta || privacy.method != MethodName::None;
        key.has_no_fixed_default() && applies && !key.is_chosen_for(file)
    };
    missing.extend(absent.iter().filter(needed).map(|key| key.path()));
    missing
}

/// Joins the keys into a comma-separated list.
pub(super) fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [key] => (*key).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
