//! Alternative spellings of keys and values, and suggestions for unknown words.

use crate::error::{Error, Result};
use toml::{Table, Value};

/// British spellings of keys, at any level.
const KEYS: [(&str, &str); 2] = [("optimiser", "optimizer"), ("quantise", "quantize")];

/// British spellings of values: the key's path, the spelling, and the run-file spelling.
const VALUES: [(&str, &str, &str); 3] = [
    ("data.task", "language-modelling", "language-modeling"),
    ("data.task", "masked-language-modelling", "masked-language-modeling"),
    ("privacy.local.bound", "normalise", "normalize"),
];

/// Names that other tools use for a key: suggested when the key is unknown, never accepted
/// silently.
const OTHER_NAMES: [(&str, &str); 22] = [
    ("lr", "learning_rate"),
    ("lr_schedule", "learning_rate_schedule"),
    ("lr_scheduler", "learning_rate_schedule"),
    ("schedule", "learning_rate_schedule"),
    ("scheduler", "learning_rate_schedule"),
    ("warmup_ratio", "warmup"),
    ("batch_size", "batch"),
    ("num_epochs", "epochs"),
    ("num_train_epochs", "epochs"),
    ("eps", "epsilon"),
    ("target_epsilon", "epsilon"),
    ("target_delta", "delta"),
    ("max_grad_norm", "clip"),
    ("clipping", "clip"),
    ("sigma", "noise_multiplier"),
    ("max_length", "max_tokens"),
    ("max_seq_length", "max_tokens"),
    ("texts", "text"),
    ("eval", "validation"),
    ("dev", "validation"),
    ("user", "author"),
    ("name", "hub"),
];

/// Removed keys and the reason for their removal.
const REMOVED: [(&str, &str); 1] =
    [("data.augment", "copies of examples with replaced tokens did not raise accuracy")];

/// Renames alternative spellings to the run-file spelling; returns whether any were renamed.
pub(super) fn normalize(table: &mut Table) -> Result<bool> {
    for (key, why) in REMOVED {
        if find_mut(table, key).is_some() {
            return Err(Error::run_file(format!(
                "{key} is no longer supported, because {why}; remove it from the run file"
            )));
        }
    }
    let renamed = rename_keys(table)?;
    let mut any = renamed;
    for (path, other, ours) in VALUES {
        if let Some(Value::String(value)) = find_mut(table, path)
            && value == other
        {
            *value = ours.to_owned();
            any = true;
        }
    }
    Ok(any)
}

fn rename_keys(table: &mut Table) -> Result<bool> {
    let mut any = false;
    for (other, ours) in KEYS {
        let Some(value) = table.remove(other) else { continue };
        any = true;
        if table.insert(ours.to_owned(), value).is_some() {
            return Err(Error::run_file(format!(
                "{other} and {ours} are two spellings of one key; leave one of them out"
            )));
        }
    }
    for (_, value) in table.iter_mut() {
        if let Value::Table(inner) = value {
            any |= rename_keys(inner)?;
        }
    }
    Ok(any)
}

fn find_mut<'a>(table: &'a mut Table, path: &str) -> Option<&'a mut Value> {
    match path.split_once('.') {
        None => table.get_mut(path),
        Some((first, rest)) => find_mut(table.get_mut(first)?.as_table_mut()?, rest),
    }
}

/// Converts a key's path to the run-file spelling.
pub(super) fn path(path: &str) -> String {
    let ours = |part: &str| {
        let alias = KEYS.iter().find(|(other, _)| *other == part);
        alias.map_or(part.to_owned(), |(_, ours)| (*ours).to_owned())
    };
    path.split('.').map(ours).collect::<Vec<_>>().join(".")
}

/// Adds "did you mean" to an error message about an unknown key or value that lists the known ones.
pub(super) fn with_suggestion(message: &str) -> String {
    let unchanged = || message.to_owned();
    let Some((what, known)) = message.split_once(", expected ") else { return unchanged() };
    if !what.starts_with("unknown field") && !what.starts_with("unknown variant") {
        return unchanged();
    }
    let Some(unknown) = what.split('`').nth(1) else { return unchanged() };
    let known_words: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    match suggestion(unknown, &known_words) {
        Some(meant) => format!("{what} (did you mean `{meant}`?), expected {known}"),
        None => unchanged(),
    }
}

/// The known word that an unknown word was probably meant to be.
pub fn suggestion<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |word: &str| word.to_lowercase().replace(['_', ' '], "-");
    let unknown = plain(unknown);
    let by_other_name = OTHER_NAMES.iter().find_map(|(other, ours)| {
        (plain(other) == unknown).then(|| known.iter().copied().find(|word| word == ours))?
    });
    by_other_name.or_else(|| {
        // Up to a third of the letters may differ; none in a two-letter word.
        let most = unknown.chars().count() / 3;
        let near = known.iter().map(|word| (edit_distance(&unknown, &plain(word)), *word));
        near.filter(|(distance, _)| *distance <= most).min_by_key(|near| near.0).map(|near| near.1)
    })
}

/// Edit distance: insertions, deletions, substitutions and swaps of adjacent letters.
pub fn edit_distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut rows = vec![(0..=right.len()).collect::<Vec<usize>>()];
    for i in 1..=left.len() {
        let mut row = vec![i];
        for j in 1..=right.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            let exchanged =
                i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1];
            if exchanged {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_is_told_what_it_was_meant_to_be() {
        let known = ["epochs", "batch", "learning_rate", "optimizer", "clip", "dp-sgd", "epsilon"];
        for (unknown, meant) in [
            ("epoch", Some("epochs")),
            ("bacth", Some("batch")),
            ("batch_size", Some("batch")),
            ("lr", Some("learning_rate")),
            ("learningrate", Some("learning_rate")),
            ("dp_sgd", Some("dp-sgd")),
            ("DP-SGD", Some("dp-sgd")),
            ("epsilom", Some("epsilon")),
            ("colour", None),
            ("zz", None),
        ] {
            assert_eq!(suggestion(unknown, &known), meant, "{unknown}");
        }
        let message = "unknown field `bacth`, expected one of `epochs`, `batch`";
        assert_eq!(
            with_suggestion(message),
            "unknown field `bacth` (did you mean `batch`?), expected one of `epochs`, `batch`"
        );
        let other = "invalid type: string \"many\", expected u64";
        assert_eq!(with_suggestion(other), other);
    }

    #[test]
    fn british_spellings_are_read() {
        let text = "[training]\noptimiser = \"sgd\"\n[data]\ntask = \"language-modelling\"";
        let mut table: Table = text.parse().unwrap();
        assert!(normalize(&mut table).unwrap());
        assert_eq!(table["training"]["optimizer"].as_str(), Some("sgd"));
        assert_eq!(table["data"]["task"].as_str(), Some("language-modeling"));
        assert!(!normalize(&mut table).unwrap());
        let mut both: Table = "[a]\noptimizer = 1\noptimiser = 2".parse().unwrap();
        assert!(normalize(&mut both).unwrap_err().to_string().contains("two spellings"));
        for old in ["data.augment = {}", "data.augment = { copies = 4, infill = \"bert\" }"] {
            let message = normalize(&mut old.parse().unwrap()).unwrap_err().to_string();
            assert!(message.contains("data.augment is no longer supported"), "{message}");
        }
        assert_eq!(path("training.optimiser"), "training.optimizer");
    }
}
