//! File formats.

use super::error::{Error, Result};
use std::path::Path;

pub use undertone_run::Format;

/// The stated format, or else the one that the file's extension names.
pub fn format_of(path: &Path, stated: Option<Format>) -> Result<Format> {
    let found = stated.or_else(|| Format::from_extension(path));
    found.ok_or_else(|| Error::UnknownFormat { file: path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_names_the_format() {
        for (name, format) in [
            ("a.tsv", Format::Tsv),
            ("a.CSV", Format::Csv),
            ("a.b.jsonl", Format::Jsonl),
            ("a.ndjson", Format::Jsonl),
            ("a.json", Format::Jsonl),
            ("a.parquet", Format::Parquet),
            ("a.txt", Format::Text),
            ("a.tsv.gz", Format::Tsv),
            ("b/a.b.CSV.GZ", Format::Csv),
            ("a.json.gz", Format::Jsonl),
            ("a.txt.gz", Format::Text),
        ] {
            assert_eq!(format_of(Path::new(name), None), Ok(format));
        }
    }

    #[test]
    fn what_is_stated_wins() {
        assert_eq!(format_of(Path::new("a.tsv"), Some(Format::Csv)), Ok(Format::Csv));
        assert_eq!(format_of(Path::new("a"), Some(Format::Csv)), Ok(Format::Csv));
    }

    #[test]
    fn an_unknown_extension_is_refused() {
        for name in ["a", "a.docx", "", "a.gz", "a.parquet.gz", ".gz", "a.tsv.gz.gz"] {
            assert_eq!(
                format_of(Path::new(name), None),
                Err(Error::UnknownFormat { file: name.into() })
            );
        }
    }
}
