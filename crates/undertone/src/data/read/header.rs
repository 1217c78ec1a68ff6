//! Lookup of columns in the header.

use super::super::error::{Error, Result};
use std::path::Path;

/// The index in the header of each requested column.
pub(super) fn places(file: &Path, header: &[String], columns: &[&str]) -> Result<Vec<usize>> {
    columns.iter().map(|column| place(file, header, column)).collect()
}

fn place(file: &Path, header: &[String], column: &str) -> Result<usize> {
    let mut places = (0..header.len()).filter(|&i| header[i] == column);
    match (places.next(), places.next()) {
        (Some(place), None) => Ok(place),
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
        assert_eq!(places(file, &header, &["a", "a"]), Ok(vec![0, 0]));
        assert!(matches!(places(file, &header, &["b"]), Err(Error::RepeatedColumn { .. })));
        assert!(matches!(places(file, &header, &["c"]), Err(Error::MissingColumn { .. })));
    }
}
