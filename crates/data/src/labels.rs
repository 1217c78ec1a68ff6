//! Class labels and their ids.

use super::error::{Error, Result};
use super::format::Format;
use super::read;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use undertone_settings::OnBadRow;

/// Maximum number of classes read from a file.
const MOST_CLASSES: usize = 50;

/// Maximum number of distinct values of an attribute.
const MOST_VALUES: usize = 1000;

/// Maximum number of characters in a class name read from a file.
const LONGEST_NAME: usize = 64;

/// Minimum number of rows per class, averaged over the file.
const ROWS_PER_CLASS: u64 = 20;

/// The names of the classes; a class id is an index into them.
///
/// The number of classes determines the shape of the task head and is therefore public. Names read
/// from private rows are not: see [`Labels::numbered`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    names: Vec<String>,
    /// Values of a file that are read as another name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    renamed: BTreeMap<String, String>,
}

impl Labels {
    /// Creates labels from names, in the order of their ids.
    pub fn given(names: Vec<String>) -> Result<Labels> {
        let mut seen = BTreeSet::new();
        match names.iter().find(|name| !seen.insert(name.as_str())) {
            Some(twice) => {
                Err(Error::invalid("a label's name", format!("{twice:?} twice"), "unique"))
            }
            None => Ok(Labels { names, renamed: BTreeMap::new() }),
        }
    }

    /// Reads values of a file as other names, which must be among those of the classes.
    pub fn with_renamed(mut self, renamed: &BTreeMap<String, String>) -> Result<Labels> {
        let missing = renamed.iter().find(|(_, name)| !self.names.contains(name));
        if let Some((value, name)) = missing {
            return Err(Error::invalid(
                "data.rename_labels",
                format!("{value:?} = {name:?}"),
                format!("a value and one of the classes, {}", self.list()),
            ));
        }
        self.renamed = renamed.clone();
        Ok(self)
    }

    /// The labels that occur in a column of a file, in numerical order if all are integers,
    /// otherwise in lexicographic order. Rejects a column that looks like texts, names or numbers
    /// of people.
    ///
    /// # Privacy
    ///
    /// The names are copies of private cells. Only their number may be published, and only because
    /// the ledger lists the assumption that it is public.
    pub fn from_file(
        path: &Path,
        format: Format,
        column: &str,
        on_bad_row: OnBadRow,
        renamed: &BTreeMap<String, String>,
    ) -> Result<Labels> {
        let rows_by_class = rows_by_class(path, format, column, on_bad_row, renamed, MOST_CLASSES)?;
        check_classes(&rows_by_class).map_err(|reason| not_labels(path, column, reason))?;
        Labels::in_order(rows_by_class).with_renamed(renamed)
    }

    /// Like [`Labels::from_file`], for the values of any attribute that an attack infers. Training
    /// must not use it.
    pub fn of_attribute(
        path: &Path,
        format: Format,
        column: &str,
        on_bad_row: OnBadRow,
    ) -> Result<Labels> {
        let renamed = BTreeMap::new();
        let values = rows_by_class(path, format, column, on_bad_row, &renamed, MOST_VALUES)?;
        Ok(Labels::in_order(values))
    }

    fn in_order(rows_by_class: BTreeMap<String, u64>) -> Labels {
        let mut names: Vec<String> = rows_by_class.into_keys().collect();
        if names.iter().all(|name| integer(name).is_some()) {
            names.sort_by_key(|name| integer(name));
        }
        Labels { names, renamed: BTreeMap::new() }
    }

    /// `LABEL_0`, `LABEL_1`, … instead of the names, which is how transformers calls unnamed
    /// classes.
    pub fn numbered(&self) -> Vec<String> {
        (0..self.names.len()).map(|class| format!("LABEL_{class}")).collect()
    }

    /// The class id of a label as written in a file.
    ///
    /// Files often contain 0, 1, … where the model has names, so an integer that is not a name is
    /// taken as the id itself, unless all names are integers.
    pub fn id(&self, label: &str) -> Option<u32> {
        let label = self.renamed.get(label).map_or(label, String::as_str);
        let index = self.names.iter().position(|name| name == label).or_else(|| {
            let index: usize = label.parse().ok()?;
            let numbered = self.names.iter().all(|name| integer(name).is_some());
            (index < self.names.len() && !numbered).then_some(index)
        })?;
        u32::try_from(index).ok()
    }

    /// Like [`Labels::id`], with an error that names the line of the file.
    pub fn require(&self, label: &str, file: &Path, line: u64) -> Result<u32> {
        self.id(label).ok_or_else(|| Error::UnknownLabel {
            file: file.into(),
            line,
            label: excerpt(label),
            known: self.list(),
        })
    }

    /// The name of a class id.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.names.get(id as usize).map(String::as_str)
    }

    /// All names, in the order of their ids.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The first few names, shortened, for messages.
    pub fn list(&self) -> String {
        const LISTED: usize = 12;
        let names: Vec<String> = self.names.iter().take(LISTED).map(|name| excerpt(name)).collect();
        match self.names.len().saturating_sub(LISTED) {
            0 => names.join(", "),
            more => format!("{} and {more} more", names.join(", ")),
        }
    }

    /// Number of classes.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

fn not_labels(path: &Path, column: &str, reason: String) -> Error {
    Error::NotLabels { file: path.into(), column: column.into(), reason }
}

/// The values of a column, with the number of rows for each.
fn rows_by_class(
    path: &Path,
    format: Format,
    column: &str,
    on_bad_row: OnBadRow,
    renamed: &BTreeMap<String, String>,
    most: usize,
) -> Result<BTreeMap<String, u64>> {
    let mut rows_by_class: BTreeMap<String, u64> = BTreeMap::new();
    for row in read::rows_or_skip(path, format, &[column], on_bad_row)? {
        let row = row?;
        let Some(label) = row.values.into_iter().next().filter(|label| !label.is_empty()) else {
            return Err(Error::MissingValue {
                file: path.into(),
                line: row.line,
                column: column.into(),
            });
        };
        let label = renamed.get(&label).cloned().unwrap_or(label);
        *rows_by_class.entry(label).or_default() += 1;
        if rows_by_class.len() > most {
            let reason = format!("it has more than {most} different values");
            return Err(not_labels(path, column, reason));
        }
    }
    Ok(rows_by_class)
}

/// Why a column with few distinct values still cannot contain labels. Two classes may have any
/// size.
fn check_classes(rows_by_class: &BTreeMap<String, u64>) -> std::result::Result<(), String> {
    if rows_by_class.keys().any(|name| name.chars().count() > LONGEST_NAME) {
        return Err(format!("it has values of more than {LONGEST_NAME} characters"));
    }
    let classes = rows_by_class.len() as u64;
    let rows: u64 = rows_by_class.values().sum();
    if classes > 2 && classes * ROWS_PER_CLASS > rows {
        let percent = 100 / ROWS_PER_CLASS;
        return Err(format!(
            "its {classes} different values are more than {percent} % of the {rows} rows"
        ));
    }
    let single = rows_by_class.values().filter(|&&rows| rows == 1).count() as u64;
    if classes > 2 && 2 * single > classes {
        return Err(format!("{single} of its {classes} different values occur only once"));
    }
    Ok(())
}

/// The beginning of a cell, short enough that a message never contains a private text.
pub(super) fn excerpt(cell: &str) -> String {
    const SHOWN: usize = 20;
    match cell.char_indices().nth(SHOWN) {
        None => cell.to_owned(),
        Some((end, _)) => format!("{}…", &cell[..end]),
    }
}

fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> Labels {
        Labels::given(names.iter().map(|name| name.to_string()).collect()).unwrap()
    }

    fn written(rows: &str) -> Result<Labels> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.tsv");
        std::fs::write(&file, format!("text\tlabel\n{rows}")).unwrap();
        Labels::from_file(&file, Format::Tsv, "label", OnBadRow::Refuse, &BTreeMap::new())
    }

    /// A file with each of these labels in `count` rows.
    fn repeated(names: &[&str], count: usize) -> Result<Labels> {
        written(&names.iter().map(|name| format!("a\t{name}\n").repeat(count)).collect::<String>())
    }

    #[test]
    fn integers_are_sorted_as_numbers() {
        assert_eq!(repeated(&["10", "9", "-1"], 20).unwrap().names(), ["-1", "9", "10"]);
        let mixed = repeated(&["yes", "no", "10", "9"], 20).unwrap();
        assert_eq!(mixed.names(), ["10", "9", "no", "yes"]);
        assert_eq!(mixed.numbered(), ["LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"]);
    }

    #[test]
    fn numbers_stand_for_names() {
        let polarity = labels(&["negative", "positive"]);
        assert_eq!(polarity.id("positive"), Some(1));
        assert_eq!(polarity.id("1"), Some(1));
        assert_eq!(polarity.id("2"), None);
        assert_eq!(polarity.id("-1"), None);
        assert_eq!(polarity.name(0), Some("negative"));
        assert_eq!(polarity.name(2), None);
    }

    #[test]
    fn names_that_are_integers_are_only_names() {
        let stars = labels(&["1", "2", "5"]);
        assert_eq!(stars.id("5"), Some(2));
        assert_eq!(stars.id("0"), None);
    }

    #[test]
    fn an_unknown_label_says_where() {
        let error = labels(&["no", "yes"]).require("maybe", Path::new("a.csv"), 12).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.csv:12: label \"maybe\" is not one of no, yes; correct the row or name all the labels"
        );
    }

    #[test]
    fn values_are_read_as_other_names() {
        let renamed = |value: &str, name: &str| BTreeMap::from([(value.into(), name.into())]);
        let sports = labels(&["Sports", "World"]).with_renamed(&renamed("SPORTS", "Sports"));
        assert_eq!(sports.unwrap().id("SPORTS"), Some(0));
        let error = labels(&["World"]).with_renamed(&renamed("SPORTS", "Sports")).unwrap_err();
        assert!(error.to_string().contains("one of the classes, World"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.tsv");
        let rows = "a\tno\na\tyes\na\tyess\n".repeat(20);
        std::fs::write(&file, format!("text\tlabel\n{rows}")).unwrap();
        let renamed = renamed("yess", "yes");
        let labels_read =
            Labels::from_file(&file, Format::Tsv, "label", OnBadRow::Refuse, &renamed);
        assert_eq!(labels_read.unwrap().names(), ["no", "yes"]);
    }

    #[test]
    fn names_must_differ() {
        assert!(Labels::given(vec!["a".into(), "a".into()]).is_err());
    }

    #[test]
    fn messages_show_the_beginning_of_a_cell_alone() {
        let text = "the patient of 4 May complains about headaches";
        let error = labels(&["no", "yes"]).require(text, Path::new("a.csv"), 12).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("the patient of 4 May…") && !message.contains("complains"));
        let many: Vec<String> = (0..30).map(|i| format!("class {i}")).collect();
        let list = Labels::given(many).unwrap().list();
        assert!(list.ends_with("class 11 and 18 more"), "{list}");
    }

    #[test]
    fn a_missing_label_is_refused() {
        assert!(matches!(written("a\tyes\nb\t\n"), Err(Error::MissingValue { line: 3, .. })));
    }

    /// Texts and numbers of people instead of labels, and the most extreme files that still pass.
    #[test]
    fn columns_that_cannot_be_labels_are_refused() {
        let names = |count: usize| (0..count).map(|i| format!("class {i}")).collect::<Vec<_>>();
        let of = |count: usize, rows: usize| {
            let names = names(count);
            repeated(&names.iter().map(String::as_str).collect::<Vec<_>>(), rows)
        };
        let refused = |labels: Result<Labels>, why: &str| {
            let error = labels.unwrap_err();
            assert!(matches!(error, Error::NotLabels { .. }), "{error}");
            let message = error.to_string();
            assert!(message.contains(why) && !message.contains("class "), "{message}");
        };
        assert_eq!(of(50, 20).unwrap().len(), 50);
        refused(of(51, 20), "more than 50 different values");
        refused(of(3, 19), "3 different values are more than 5 % of the 57 rows");
        refused(of(40, 1), "more than 5 %");
        assert_eq!(of(2, 1).unwrap().len(), 2);
        let long = "x".repeat(LONGEST_NAME);
        assert_eq!(repeated(&[&long, "no"], 20).unwrap().len(), 2);
        refused(repeated(&[&format!("{long}x"), "no"], 20), "values of more than 64 characters");
        // One common value, and a unique value for each of a few people.
        let rare = |count: usize| {
            let rare: String = names(count).iter().map(|name| format!("a\t{name}\n")).collect();
            written(&format!("{}{rare}", "a\tnone\na\tsome\n".repeat(1000)))
        };
        assert_eq!(rare(2).unwrap().len(), 4);
        refused(rare(3), "3 of its 5 different values occur only once");
    }
}
