//! Counts the privacy units of a file without tokenizing it.

use super::error::Result;
use super::format::{Format, format_of};
use super::hold_out::Part;
use super::options::PrivacyUnit;
use super::read;
use super::units::Units;
use std::path::Path;
use undertone_settings::OnBadRow;

/// Number of rows, privacy units and examples in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitCount {
    /// Number of readable rows.
    pub rows: usize,
    /// Number of privacy units: rows, or authors.
    pub units: usize,
    /// Number of examples, if each row is one: rows beyond an author's maximum are none.
    pub examples: usize,
}

/// Counts rows and privacy units of a part as [`Dataset::load`](super::Dataset::load) does. `texts`
/// are the text columns; none of their values are kept.
pub fn count_units(
    path: &Path,
    format: Option<Format>,
    texts: &[&str],
    unit: &PrivacyUnit,
    part: Part,
    on_bad_row: OnBadRow,
) -> Result<UnitCount> {
    let mut columns = texts.to_vec();
    if let PrivacyUnit::Author { column, .. } = unit {
        columns.push(column);
    }
    let mut units = Units::new(unit, part, texts.len());
    let (mut rows, mut examples) = (0, 0);
    // Whether the task supports lists and objects is checked when it reads them.
    for row in read::rows_with_nested(path, format_of(path, format)?, &columns, on_bad_row)? {
        if let Some(unit) = units.of(path, &mut row?)? {
            units.count_example(unit);
            examples += 1;
        }
        rows += 1;
    }
    Ok(UnitCount { rows, units: units.count(), examples })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_authors_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tsv");
        std::fs::write(&path, "text\tby\na\tann\nb\tbob\n\tann\ntorn\nc\tann\n").unwrap();
        let count = |unit: &PrivacyUnit| {
            count_units(&path, None, &["text"], unit, Part::All, OnBadRow::Skip)
        };
        let rows = UnitCount { rows: 4, units: 4, examples: 4 };
        assert_eq!(count(&PrivacyUnit::Row).unwrap(), rows);
        for (at_most, examples) in [(1, 2), (2, 3), (3, 4)] {
            let authors = PrivacyUnit::Author { column: "by".into(), at_most };
            assert_eq!(count(&authors).unwrap(), UnitCount { rows: 4, units: 2, examples });
        }
        let row = PrivacyUnit::Row;
        let refused = count_units(&path, None, &["text"], &row, Part::All, OnBadRow::Refuse);
        assert!(refused.is_err());
    }
}
