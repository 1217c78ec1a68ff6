//! Lookup of columns in the header.

use super::super::error::{Error, Result};
use std::path::Path;

/// The header index of each requested column.
pub(super) fn indices(file: &Path, header: &[String], columns: &[&str]) -> Result<Vec<usize>> {
    columns.iter().map(|column| index(file, header, column)).collect()
}

/// Fails if a header names a column twice.
pub(super) fn unrepeated(file: &Path, header: &[String]) -> Result<()> {
    header.iter().try_for_each(|column| index(file, header, column).map(drop))
}

fn index(file: &Path, header: &[String], column: &str) -> Result<usize> {
    let mut indices = (0..header.len()).filter(|&i| header[i] == column);
    match (indices.next(), indices.next()) {
        (Some(index), None) => Ok(index),
        (Some(_), Some(_)) => {
            Err(Error::RepeatedColumn { file: file.into(), column: column.into() })
        }
        (None, _) => Err(Error::MissingColumn {
            file: file.into(),
            column: column.into(),
            available: header.to_vec(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_once_or_not_at_all() {
        let header = ["a", "b", "b"].map(str::to_owned);
        let file = Path::new("x.tsv");
        assert_eq!(indices(file, &header, &["a", "a"]), Ok(vec![0, 0]));
        assert!(matches!(indices(file, &header, &["b"]), Err(Error::RepeatedColumn { .. })));
        assert!(matches!(indices(file, &header, &["c"]), Err(Error::MissingColumn { .. })));
    }
}
