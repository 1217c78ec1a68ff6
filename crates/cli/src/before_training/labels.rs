//! Rows per class and near-duplicate class names, for the curator's terminal. The counts come from
//! private rows, so they are not saved to any file.

use crate::source::quoted;
use crate::train::shell_quoted;
use std::collections::BTreeMap;
use undertone::data::{Dataset, Target};
use undertone_run::edit_distance;

/// A class and its number of rows.
#[derive(Clone, Copy, Debug)]
struct Class<'a> {
    name: &'a str,
    rows: u64,
}

/// Rows per class, and a warning for each name that is probably a misspelling of another.
pub fn notes(data: &Dataset) -> Vec<String> {
    let Some(labels) = &data.labels else { return Vec::new() };
    let mut rows = vec![0; labels.len()];
    for example in &data.examples {
        if let Target::Class(class) = example.target {
            rows[class as usize] += 1;
        }
    }
    let classes: Vec<Class> =
        labels.names().iter().zip(rows).map(|(name, rows)| Class { name, rows }).collect();
    let mut notes = vec![counts(&classes)];
    if let [only] = classes.iter().filter(|class| class.rows > 0).collect::<Vec<_>>().as_slice() {
        notes.push(format!(
            "warning: every row has the class {:?}, so there is nothing to learn; check data.label",
            only.name
        ));
    }
    notes.extend(duplicates(&classes));
    notes
}

fn counts(classes: &[Class]) -> String {
    const SHOWN: usize = 20;
    let shown = classes.iter().take(SHOWN).map(|class| format!("{} {}", class.name, class.rows));
    let shown: Vec<String> = shown.collect();
    let more = match classes.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more classes"),
    };
    format!("rows per class (private, shown only here): {}{more}", shown.join(", "))
}

/// A warning with a remedy, if some names are near-duplicates.
fn duplicates(classes: &[Class]) -> Option<String> {
    let mut renamed: BTreeMap<&str, &str> = BTreeMap::new();
    for (i, class) in classes.iter().enumerate() {
        // The most frequent of the names that it may be a misspelling of.
        let others = classes.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, other)| other);
        let meant = others.filter(|other| is_misspelled(class, other)).max_by_key(|of| of.rows);
        if let Some(meant) = meant {
            renamed.insert(class.name, meant.name);
        }
    }
    // That name may itself be a misspelling of a third one.
    let direct: Vec<(&str, &str)> = renamed
        .iter()
        .map(|(&name, &meant)| (name, renamed.get(meant).copied().unwrap_or(meant)))
        .collect();
    if direct.is_empty() {
        return None;
    }
    let pairs: Vec<String> =
        direct.iter().map(|(name, meant)| format!("{name:?} and {meant:?}")).collect();
    let table: Vec<String> = direct
        .iter()
        .map(|(name, meant)| format!("{} = {}", quoted(name), quoted(meant)))
        .collect();
    let change = format!("data.rename_labels={{ {} }}", table.join(", "));
    Some(format!(
        "warning: {} look like one class each, but are learned as two; correct the file, or join \
         them with --set {} (which makes these names public)",
        pairs.join(", "),
        shell_quoted(&change)
    ))
}

/// Whether a class name is probably another one with different capitals or blanks, or a rare typo
/// of it.
fn is_misspelled(class: &Class, other: &Class) -> bool {
    let is_rarer = (class.rows, class.name) < (other.rows, other.name);
    if !is_rarer {
        return false;
    }
    let (plain, of_other) = (plain(class.name), plain(other.name));
    if plain == of_other {
        return true;
    }
    // Digits distinguish classes: "level 1" and "level 2".
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let most = plain.chars().count().min(of_other.chars().count()) / 3;
    let is_rare = class.rows * 10 <= other.rows;
    is_rare
        && digits(&plain) == digits(&of_other)
        && edit_distance(&plain, &of_other) <= most.min(2)
}

/// A name in lower case without blanks and punctuation.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric() || "+-<>=".contains(*c))
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(classes: &[(&str, u64)]) -> Option<String> {
        let classes: Vec<Class> =
            classes.iter().map(|&(name, rows)| Class { name, rows }).collect();
        duplicates(&classes)
    }

    #[test]
    fn near_duplicates_are_named_with_the_line_that_joins_them() {
        let sports = [("Sports", 90), ("SPORTS", 9), ("Sprots", 1), ("Sports ", 3), ("World", 80)];
        let said = warning(&sports).unwrap();
        for pair in ["\"SPORTS\" and \"Sports\"", "\"Sprots\" and", "\"Sports \" and"] {
            assert!(said.contains(pair), "{said}");
        }
        let line = "--set 'data.rename_labels={ \"SPORTS\" = \"Sports\", \"Sports \" = \"Sports\", \
                    \"Sprots\" = \"Sports\" }'";
        assert!(said.contains(line), "{said}");
    }

    #[test]
    fn classes_that_differ_are_left_alone() {
        assert_eq!(warning(&[("positive", 50), ("negative", 5)]), None);
        assert_eq!(warning(&[("level 1", 50), ("level 2", 1)]), None);
        assert_eq!(warning(&[("male", 50), ("female", 3)]), None);
        assert_eq!(warning(&[("A", 50), ("B", 1), ("A-", 2)]), None);
        assert_eq!(warning(&[("food", 50), ("good", 40)]), None, "both are frequent");
    }
}
