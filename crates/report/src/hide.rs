//! Hides paths in a report meant for others, showing only file names: folders reveal users,
//! projects and machines.

use crate::document::{Block, Document, Table};
use crate::folder::Run;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use undertone_run::last_component;

/// Keys of a run file whose values are paths.
const KEYS: [&str; 5] = ["train", "validation", "public", "file", "path"];

/// Names runs by the last component of their folders.
pub fn rename(runs: &mut [Run]) {
    let mut taken = BTreeSet::new();
    for run in runs {
        run.name = free(last_component(&run.name), &mut taken);
    }
}

/// Replaces the paths of the runs' files by their file names.
pub fn hide_paths(document: &mut Document, runs: &[Run]) {
    let mut paths = BTreeSet::new();
    for run in runs {
        // A plan that cannot be serialized as JSON was not read from JSON.
        let plan = serde_json::to_value(&run.summary.plan).unwrap_or_default();
        collect(&plan, &mut paths);
        paths.insert(run.folder.display().to_string());
        let registered = run.summary.resolved.registered.as_ref();
        paths.extend(registered.map(|registered| registered.file.display().to_string()));
    }
    let (mut taken, mut names) = (BTreeSet::new(), BTreeMap::new());
    for path in paths {
        names.insert(path.clone(), free(last_component(&path), &mut taken));
    }
    // One path may be a prefix of another.
    let mut names: Vec<(String, String)> = names.into_iter().collect();
    names.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    let hide = |text: &mut String| {
        for (path, name) in names.iter().filter(|(path, name)| path != name) {
            *text = text.replace(path, name);
        }
    };
    hide(&mut document.title);
    hide(&mut document.subtitle);
    for section in &mut document.sections {
        hide(&mut section.title);
        section.blocks.iter_mut().for_each(|block| hide_in_block(block, &hide));
    }
}

fn hide_in_block(block: &mut Block, hide: &impl Fn(&mut String)) {
    match block {
        Block::Paragraph(text) | Block::Note(text) | Block::Verbatim { text, .. } => hide(text),
        Block::Statement { sentence, meaning, .. } => {
            hide(sentence);
            meaning.iter_mut().for_each(hide);
        }
        Block::Facts(facts) => facts.iter_mut().for_each(|(_, value)| hide(value)),
        Block::List(items) => items.iter_mut().for_each(hide),
        Block::Table(Table { rows, .. }) => rows.iter_mut().flatten().for_each(hide),
        // Charts contain run names, which have already been renamed.
        Block::Chart(_) => {}
    }
}

fn collect(value: &Value, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(path) if KEYS.contains(&key.as_str()) && is_path(path) => {
                        paths.insert(path.clone());
                    }
                    other => collect(other, paths),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| collect(value, paths)),
        _ => {}
    }
}

/// Whether a text is a path with a folder, rather than a model's name on the Hub.
fn is_path(text: &str) -> bool {
    let parts = text.split(['/', '\\']).count();
    let has_ending = Path::new(text).extension().is_some();
    let is_hub_name = parts == 2 && !text.starts_with(['.', '/', '~']) && !has_ending;
    parts > 1 && (!is_hub_name || Path::new(text).exists())
}

/// The name, with a number appended if another file has the same name.
fn free(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name} ({number})"));
    let unused =
        std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name));
    let unused = unused.unwrap_or_else(|| name.to_owned());
    taken.insert(unused.clone());
    unused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_names_of_models() {
        for path in ["/data/a.csv", "data/a.csv", "./a", "../model", "a/b/c", "C:\\data\\a.csv"] {
            assert!(is_path(path), "{path}");
        }
        for name in ["a.csv", "bert-base-uncased", "sentence-transformers/all-MiniLM"] {
            assert!(!is_path(name), "{name}");
        }
    }

    #[test]
    fn files_of_one_name_are_told_apart() {
        let mut taken = BTreeSet::new();
        let names: Vec<String> = (0..3).map(|_| free("a.csv", &mut taken)).collect();
        assert_eq!(names, ["a.csv", "a.csv (2)", "a.csv (3)"]);
    }
}
