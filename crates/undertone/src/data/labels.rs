//! Class labels and their ids.

use super::error::{Error, Result};
use super::format::Format;
use super::read;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use undertone_run::OnBadRow;

/// Maximum number of classes; more mean that a column of texts or numbers was taken for the labels.
const MOST: usize = 1000;

/// The names of the classes; a class id is an index into them.
///
/// The names are assumed to be public: they determine the shape of the task head and are written
/// into the model's configuration. If the mere occurrence of a label is private, give the names
/// instead of reading them from the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    names: Vec<String>,
}

impl Labels {
    /// Labels by name, in the order of their ids.
    pub fn given(names: Vec<String>) -> Result<Labels> {
        let mut seen = BTreeSet::new();
        match names.iter().find(|name| !seen.insert(name.as_str())) {
            Some(twice) => {
                Err(Error::invalid("a label's name", format!("{twice:?} twice"), "unique"))
            }
            None => Ok(Labels { names }),
        }
    }

    /// The labels that occur in a column of a file, in numerical order if all are integers, else in
    /// lexicographic order.
    ///
    /// # Privacy
    ///
    /// The set is a function of the file: a label that occurs in one row alone would show in the
    /// model's shape and configuration. Private training must be given its labels, or take them
    /// from public data.
    pub fn from_file(
        path: &Path,
        format: Format,
        column: &str,
        on_bad_row: OnBadRow,
    ) -> Result<Labels> {
        let mut found = BTreeSet::new();
        for row in read::rows_or_skip(path, format, &[column], on_bad_row)? {
            let row = row?;
            let Some(label) = row.values.into_iter().next().filter(|label| !label.is_empty())
            else {
                return Err(Error::MissingValue {
                    file: path.into(),
                    line: row.line,
                    column: column.into(),
                });
            };
            // Most labels are known already, so `insert`'s allocation is avoided.
            if !found.contains(&label) {
                found.insert(label);
            }
            if found.len() > MOST {
                return Err(Error::TooManyLabels {
                    file: path.into(),
                    column: column.into(),
                    limit: MOST,
                });
            }
        }
        let mut names: Vec<String> = found.into_iter().collect();
        if names.iter().all(|name| integer(name).is_some()) {
            names.sort_by_key(|name| integer(name));
        }
        Ok(Labels { names })
    }

    /// The class id of a label as a file writes it.
    ///
    /// Files often hold 0, 1, … where the model has names, so an integer that is not a name is
    /// taken as the id itself, unless all names are integers.
    pub fn id(&self, label: &str) -> Option<u32> {
        let index = self.names.iter().position(|name| name == label).or_else(|| {
            let index: usize = label.parse().ok()?;
            let numbered = self.names.iter().all(|name| integer(name).is_some());
            (index < self.names.len() && !numbered).then_some(index)
        })?;
        u32::try_from(index).ok()
    }

    /// As [`Labels::id`], with an error that names the line of the file.
    pub fn require(&self, label: &str, file: &Path, line: u64) -> Result<u32> {
        self.id(label).ok_or_else(|| Error::UnknownLabel {
            file: file.into(),
            line,
            label: label.into(),
            known: self.names.clone(),
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

    /// Number of classes.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
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
        Labels::from_file(&file, Format::Tsv, "label", OnBadRow::Refuse)
    }

    #[test]
    fn integers_are_sorted_as_numbers() {
        assert_eq!(written("a\t10\nb\t9\nc\t-1\nd\t10\n").unwrap().names(), ["-1", "9", "10"]);
        assert_eq!(
            written("a\tyes\nb\tno\nc\t10\nd\t9\n").unwrap().names(),
            ["10", "9", "no", "yes"]
        );
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
            "a.csv:12: label \"maybe\" is not one of [\"no\", \"yes\"]; correct the row or name \
             all the labels"
        );
    }

    #[test]
    fn names_must_differ() {
        assert!(Labels::given(vec!["a".into(), "a".into()]).is_err());
    }

    #[test]
    fn a_missing_label_and_too_many_labels_are_refused() {
        assert!(matches!(written("a\tyes\nb\t\n"), Err(Error::MissingValue { line: 3, .. })));
        let many: String = (0..=MOST).map(|i| format!("a\tlabel {i}\n")).collect();
        assert!(matches!(written(&many), Err(Error::TooManyLabels { limit: MOST, .. })));
    }
}
